// See scalar.h.
#include "config/scalar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"

namespace longhaul::config {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The parts of a decimal number: (-1)^negative * digits * 10^exponent, without leading zeros in `digits`.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
  std::string plain;  // the number without '+' and '_', for from_chars
};

// One or more digits with single '_' between digits; appends the digits, advances `at`.
bool take_digits(std::string_view text, std::size_t& at, std::string& digits) {
  const std::size_t start = digits.size();
  while (at < text.size()) {
    const bool separator = text[at] == '_' && digits.size() > start && at + 1 < text.size() && is_digit(text[at + 1]) &&
                           is_digit(text[at - 1]);
    if (!is_digit(text[at]) && !separator) {
      break;
    }
    if (!separator) {
      digits += text[at];
    }
    ++at;
  }
  return digits.size() > start;
}

// [+-] (digits [. [digits]] | . digits) [e [+-] digits]; nothing for any other text, leading zeros included.
std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal out;
  std::size_t at = 0;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    out.negative = text[0] == '-';
    ++at;
  }
  std::string whole;
  std::string fraction;
  const bool has_whole = take_digits(text, at, whole);
  if (has_whole && whole.size() > 1 && whole[0] == '0') {
    return std::nullopt;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    const bool has_fraction = take_digits(text, at, fraction);
    if (!has_whole && !has_fraction) {
      return std::nullopt;
    }
  } else if (!has_whole) {
    return std::nullopt;
  }
  std::string exponent;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) {
      exponent = text[at] == '-' ? "-" : "";
      ++at;
    }
    if (!take_digits(text, at, exponent)) {
      return std::nullopt;
    }
  }
  if (at != text.size()) {
    return std::nullopt;
  }
  if (!exponent.empty()) {
    const auto result = std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.exponent);
    if (result.ec != std::errc{} || std::abs(out.exponent) > 1'000'000) {
      out.exponent = exponent[0] == '-' ? -1'000'000 : 1'000'000;  // far outside of every type
    }
  }
  out.plain = fmt::format("{}{}.{}e{}", out.negative ? "-" : "", whole.empty() ? "0" : whole,
                          fraction.empty() ? "0" : fraction, out.exponent);
  out.digits = whole + fraction;
  out.exponent -= static_cast<int64_t>(fraction.size());
  out.digits.erase(0, std::min(out.digits.find_first_not_of('0'), out.digits.size()));
  return out;
}

// The decimal as an integer of type T; otherwise what it must be.
template <class T>
std::string to_integer(Decimal decimal, T& out) {
  while (!decimal.digits.empty() && decimal.digits.back() == '0') {
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  if (decimal.digits.empty()) {
    out = 0;
    return {};
  }
  if (decimal.exponent < 0) {
    return "an integer";
  }
  const std::string too_large = fmt::format("an integer between {} and {}", std::numeric_limits<T>::min(),
                                            std::numeric_limits<T>::max());
  constexpr int64_t kMaxDigits = 19;
  if (static_cast<int64_t>(decimal.digits.size()) + decimal.exponent > kMaxDigits) {
    return too_large;
  }
  decimal.digits.append(static_cast<std::size_t>(decimal.exponent), '0');
  const std::string text = (decimal.negative ? "-" : "") + decimal.digits;
  T value{};
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) {
    return too_large;
  }
  out = value;
  return {};
}

template <class T>
std::string read_integer(const Node& node, T& out) {
  if (node.kind != Node::Kind::Scalar || node.style == Node::Style::Quoted) {
    return "an integer";
  }
  auto decimal = parse_decimal(node.text);
  return decimal ? to_integer(std::move(*decimal), out) : "an integer";
}

template <class T>
std::string read_number(const Node& node, T& out) {
  if (node.kind != Node::Kind::Scalar || node.style == Node::Style::Quoted) {
    return "a number";
  }
  const auto decimal = parse_decimal(node.text);
  if (!decimal) {
    constexpr std::array kNotFinite = {".inf", "-.inf", "+.inf", ".nan", "inf", "-inf", "nan", ".Inf", ".NaN"};
    return std::ranges::find(kNotFinite, node.text) != kNotFinite.end() ? "a finite number" : "a number";
  }
  T value{};
  const auto result = std::from_chars(decimal->plain.data(), decimal->plain.data() + decimal->plain.size(), value);
  if (result.ec == std::errc::result_out_of_range && !decimal->digits.empty()) {
    return fmt::format("a number that fits into {} bits of floating point", 8 * sizeof(T));
  }
  out = decimal->digits.empty() ? (decimal->negative ? T(-0.0) : T(0)) : value;
  return {};
}

// The shortest text that reads back to the same bits; with a point, so that every YAML reader sees a number and not text.
template <class T>
std::string number_text(T value) {
  LH_CHECK(std::isfinite(value), "an option holds the number {}, which a recipe cannot; use std::optional for 'no limit'",
           value);
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  const auto exponent = std::min(text.find('e'), text.size());
  if (exponent + 2 < text.size() && text[exponent + 2] == '0') {
    text.erase(exponent + 2, 1);  // e-05: two digits at least
  }
  if (text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

std::string read_scalar(const Node& node, bool& out) {
  const bool plain = node.kind == Node::Kind::Scalar && node.style == Node::Style::Plain;
  if (!plain || (node.text != "true" && node.text != "false")) {
    return "true or false";
  }
  out = node.text == "true";
  return {};
}

std::string read_scalar(const Node& node, int& out) { return read_integer(node, out); }
std::string read_scalar(const Node& node, int64_t& out) { return read_integer(node, out); }
std::string read_scalar(const Node& node, float& out) { return read_number(node, out); }
std::string read_scalar(const Node& node, double& out) { return read_number(node, out); }

std::string read_scalar(const Node& node, std::string& out) {
  if (node.kind != Node::Kind::Scalar) {
    return "text";
  }
  if (node.style == Node::Style::Plain && (node.text == "true" || node.text == "false")) {
    return "text (in quotes if the word itself is meant)";
  }
  if (node.text.find('\0') != std::string::npos) {
    return "text without NUL characters";
  }
  out = node.text;
  return {};
}

Node write_scalar(bool value) { return Node::scalar(value ? "true" : "false", Node::Style::Plain); }
Node write_scalar(int value) { return Node::scalar(std::to_string(value), Node::Style::Plain); }
Node write_scalar(int64_t value) { return Node::scalar(std::to_string(value), Node::Style::Plain); }
Node write_scalar(float value) { return Node::scalar(number_text(value), Node::Style::Plain); }
Node write_scalar(double value) { return Node::scalar(number_text(value), Node::Style::Plain); }
Node write_scalar(const std::string& value) {
  return Node::scalar(value, is_safe_plain(value) ? Node::Style::Plain : Node::Style::Quoted);
}

std::string show_scalar(float value) { return fmt::format("{}", value); }
std::string show_scalar(double value) { return fmt::format("{}", value); }
std::string show_scalar(const std::string& value) { return quote(value); }

bool is_safe_plain(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || (!is_letter(text[0]) && text[0] != '_' && text[0] != '/')) {
    return false;
  }
  const auto is_safe = [&](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (!std::ranges::all_of(text, is_safe)) {
    return false;
  }
  constexpr std::array kReserved = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  return std::ranges::find(kReserved, lower(text)) == kReserved.end();
}

}  // namespace longhaul::config
