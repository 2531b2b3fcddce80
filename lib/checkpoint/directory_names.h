// Names inside RUN/checkpoints. Only step_XXXXXXXX is a checkpoint; every name with a leading dot belongs to a save or a
// removal that has not finished, and may be left over from one that was killed:
//
//   step_00000100               complete once it has this name
//   .step_00000100.inprogress   being written, or left by an interrupted save; the next save removes it
//   .step_00000100.replaced     the one before a new save of the same step; counts where step_00000100 is missing
//   .step_00000100.removing     being removed
//   latest                      the newest one's name, for people and scripts
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

inline constexpr std::string_view kLatestName = "latest";
inline constexpr std::string_view kInProgressSuffix = ".inprogress";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
inline constexpr std::string_view kRemovingSuffix = ".removing";

[[nodiscard]] std::filesystem::path checkpoints_directory(const std::filesystem::path& run_directory);
[[nodiscard]] std::string step_name(int64_t step);  // "step_00000100"
[[nodiscard]] std::string rank_file_name(int rank);  // "rank_00000.h5"
// The step of "step_00000100"; nothing for any other name.
[[nodiscard]] std::optional<int64_t> parse_step_name(std::string_view name);
// DIR/NAME to DIR/.NAME.suffix
[[nodiscard]] std::filesystem::path hidden_beside(const std::filesystem::path& directory, std::string_view suffix);
// NAME of ".NAME.suffix"; nothing for any other name.
[[nodiscard]] std::optional<std::string> strip_hidden(std::string_view name, std::string_view suffix);
// Names in a directory, sorted; none when it does not exist.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& directory);

}  // namespace longhaul
