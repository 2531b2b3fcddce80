// See error.h.
#include "base/error.h"

namespace longhaul {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::Internal: return "internal error";
    case ErrorKind::Recipe: return "usage or recipe error";
    case ErrorKind::Device: return "device error";
    case ErrorKind::Comm: return "communication error";
    case ErrorKind::Checkpoint: return "checkpoint error";
    case ErrorKind::Data: return "data error";
    case ErrorKind::Conversion: return "conversion mismatch";
    case ErrorKind::OutOfMemory: return "out of memory";
    case ErrorKind::Divergence: return "divergence";
  }
  return "error";
}

Error::Error(ErrorKind kind, std::string message, std::source_location where)
    : std::runtime_error(message), kind_(kind), where_(where), message_(std::move(message)), full_(message_) {}

void Error::add_context(std::string_view context) {
  contexts_ = contexts_.empty() ? std::string(context) : fmt::format("{} / {}", context, contexts_);
  full_ = fmt::format("{} (in {})", message_, contexts_);
}

namespace detail {
void throw_check_failure(const char* expression, std::string message, std::source_location where) {
  struct CheckFailure : InternalError {
    CheckFailure(const char* text, const std::string& why, std::source_location place)
        : InternalError("check failed: {}: {} [{}:{}]", text, why, place.file_name(), place.line()) {}
  };
  throw CheckFailure(expression, message, where);
}
}  // namespace detail

}  // namespace longhaul
