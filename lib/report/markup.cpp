// See markup.h.
#include "report/markup.h"

namespace longhaul::report {
namespace {

std::string cell(const char* tag, bool is_numeric, const std::string& text) {
  return std::string("<") + tag + (is_numeric ? " class=\"number\">" : ">") + escaped(text) + "</" + tag + ">";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string to_html(const Table& table) {
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < table.head.size(); ++i) {
    out += cell("th", table.is_numeric[i], table.head[i]);
  }
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += cell("td", table.is_numeric[i], row[i]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace longhaul::report
