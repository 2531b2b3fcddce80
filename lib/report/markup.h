// The little of HTML and SVG that pages and charts are put together from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::report {

// Safe as text and within double quotes: & < > " are replaced, and control characters that neither format allows.
[[nodiscard]] std::string escaped(std::string_view text);

// A table of text; columns of numbers are set flush right. Cells are escaped here.
struct Table {
  std::vector<std::string> head;
  std::vector<bool> is_numeric;  // one a column
  std::vector<std::vector<std::string>> rows;
};
[[nodiscard]] std::string to_html(const Table& table);

}  // namespace longhaul::report
