// Errors of the whole program: one type for each exit code of the command line, so that a mistake found deep inside
// reaches the user with the right code. Messages say what, got, wanted, and what to do. Validation of arguments inside
// the program throws ShapeError or UsageError, which are internal (exit 1): a user should never see them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace longhaul {

// The value is the process exit code.
enum class ErrorKind : int {
  Internal = 1,
  Recipe = 2,
  Device = 3,
  Comm = 4,
  Checkpoint = 5,
  Data = 6,
  Conversion = 7,
  OutOfMemory = 8,
  Divergence = 9,
};

[[nodiscard]] std::string_view to_string(ErrorKind kind) noexcept;

// A format string together with the place of the call, so that variadic constructors can record where they were called.
template <class... Args>
struct LocatedFormat {
  fmt::format_string<Args...> text;
  std::source_location where;

  template <class S>
    requires std::is_convertible_v<const S&, std::string_view>
  consteval LocatedFormat(const S& s, std::source_location location = std::source_location::current())  // NOLINT: implicit by design
      : text(s), where(location) {}
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::source_location where);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] int exit_code() const noexcept { return static_cast<int>(kind_); }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }
  // The message, then the contexts from the innermost out: "… (in block 7 / moe)".
  [[nodiscard]] const char* what() const noexcept override { return full_.c_str(); }
  // Adds an outer context on the way up.
  void add_context(std::string_view context);

 private:
  ErrorKind kind_;
  std::source_location where_;
  std::string message_;
  std::string contexts_;
  std::string full_;
};

template <ErrorKind Kind>
class TypedError : public Error {
 public:
  template <class... Args>
  explicit TypedError(LocatedFormat<std::type_identity_t<Args>...> format, Args&&... args)
      : Error(Kind, fmt::format(format.text, std::forward<Args>(args)...), format.where) {}
};

class InternalError : public TypedError<ErrorKind::Internal> {
  using TypedError::TypedError;
};
// A tensor's shape, dtype or device is not what an operation needs.
class ShapeError : public TypedError<ErrorKind::Internal> {
  using TypedError::TypedError;
};
// A function was called in a way it does not allow.
class UsageError : public TypedError<ErrorKind::Internal> {
  using TypedError::TypedError;
};
class RecipeError : public TypedError<ErrorKind::Recipe> {
  using TypedError::TypedError;
};
class DeviceError : public TypedError<ErrorKind::Device> {
  using TypedError::TypedError;
};
class CommError : public TypedError<ErrorKind::Comm> {
  using TypedError::TypedError;
};
class CheckpointError : public TypedError<ErrorKind::Checkpoint> {
  using TypedError::TypedError;
};
class DataError : public TypedError<ErrorKind::Data> {
  using TypedError::TypedError;
};
class ConversionError : public TypedError<ErrorKind::Conversion> {
  using TypedError::TypedError;
};
class OutOfMemoryError : public TypedError<ErrorKind::OutOfMemory> {
  using TypedError::TypedError;
};
class DivergenceError : public TypedError<ErrorKind::Divergence> {
  using TypedError::TypedError;
};

namespace detail {
[[noreturn]] void throw_check_failure(const char* expression, std::string message, std::source_location where);
}  // namespace detail

}  // namespace longhaul

// Always on. Throws InternalError with the expression text: LH_CHECK(n > 0, "n must be positive, got {}", n).
#define LH_CHECK(condition, ...)                                                                   \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      ::longhaul::detail::throw_check_failure(#condition, fmt::format(__VA_ARGS__),                \
                                              std::source_location::current());                   \
    }                                                                                              \
  } while (false)
