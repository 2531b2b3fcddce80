// Numbers as people read them. A value that is NaN is "n/a" everywhere.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul::report {

// "1,077,740"
[[nodiscard]] std::string with_separators(double value);
// All digits below a million, then four with M, B or T: "9,313", "1.078M", "48.12B".
[[nodiscard]] std::string short_count(double value);
// "135.2 MiB"
[[nodiscard]] std::string byte_size(double bytes);
// "1h 02m", "4m 10s", "12.3 s", "180 ms"
[[nodiscard]] std::string duration(double seconds);
// "1.6309"
[[nodiscard]] std::string fixed(double value, int decimals);

}  // namespace longhaul::report
