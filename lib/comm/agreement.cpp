// See agreement.h.
#include "comm/agreement.h"

#include <algorithm>
#include <new>

namespace longhaul {

namespace {

template <class E>
class AgreedError final : public E, public AgreedFailure {
 public:
  AgreedError(const std::string& message, const AgreedFailure& failure) : E("{}", message), AgreedFailure(failure) {}
};

struct PlainThrow {
  template <class E>
  [[noreturn]] void operator()(const std::string& message) const {
    throw E("{}", message);
  }
};

struct AgreedThrow {
  const AgreedFailure& failure;

  template <class E>
  [[noreturn]] void operator()(const std::string& message) const {
    throw AgreedError<E>(message, failure);
  }
};

template <class Throw>
[[noreturn]] void throw_by_kind(ErrorKind kind, const std::string& message, const Throw& raise) {
  switch (kind) {
    case ErrorKind::Internal: raise.template operator()<InternalError>(message);
    case ErrorKind::Recipe: raise.template operator()<RecipeError>(message);
    case ErrorKind::Device: raise.template operator()<DeviceError>(message);
    case ErrorKind::Comm: raise.template operator()<CommError>(message);
    case ErrorKind::Checkpoint: raise.template operator()<CheckpointError>(message);
    case ErrorKind::Data: raise.template operator()<DataError>(message);
    case ErrorKind::Conversion: raise.template operator()<ConversionError>(message);
    case ErrorKind::OutOfMemory: raise.template operator()<OutOfMemoryError>(message);
    case ErrorKind::Divergence: raise.template operator()<DivergenceError>(message);
  }
  raise.template operator()<InternalError>(message);
}

// What one rank tells the others.
struct Failure {
  int32_t kind = 0;  // 0: none
  bool is_agreed = false;
  std::string message;
};

Failure describe_failure(const std::exception_ptr& failure) {
  if (failure == nullptr) {
    return {};
  }
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {static_cast<int32_t>(error.kind()), agreed_failure(error) != nullptr, error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int32_t>(ErrorKind::OutOfMemory), false, "the host's memory is exhausted"};
  } catch (const std::exception& error) {
    return {static_cast<int32_t>(ErrorKind::Internal), false, error.what()};
  } catch (...) {
    return {static_cast<int32_t>(ErrorKind::Internal), false, "an exception of unknown type"};
  }
}

}  // namespace

const AgreedFailure* agreed_failure(const std::exception& error) noexcept { return dynamic_cast<const AgreedFailure*>(&error); }

void throw_error(ErrorKind kind, const std::string& message) { throw_by_kind(kind, message, PlainThrow{}); }

void rethrow_if_any(HostComm& host, std::exception_ptr mine) {
  const Failure failure = describe_failure(mine);
  const std::vector<int32_t> kinds = host.all_gather_value(failure.kind);
  const auto first = std::find_if(kinds.begin(), kinds.end(), [](int32_t kind) { return kind != 0; });
  if (first == kinds.end()) {
    return;
  }
  const auto lowest = static_cast<int>(first - kinds.begin());
  // An error that was agreed before names its rank already.
  std::string message = failure.is_agreed ? failure.message : fmt::format("[rank {}] {}", host.rank(), failure.message);
  host.broadcast_string(message, lowest);
  throw_by_kind(static_cast<ErrorKind>(*first), message, AgreedThrow{AgreedFailure(lowest, host.rank())});
}

}  // namespace longhaul
