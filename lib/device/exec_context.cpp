// See exec_context.h.
#include "device/exec_context.h"

#include "base/error.h"

namespace longhaul {

ExecContext ExecContext::cuda(Device device) {
  auto context = std::make_unique<CudaContext>(device, CudaContext::Checks::Synchronise);
  ExecContext result(device, Mode::Execute, Arena(device, "scratch", 0, Arena::Growth::Chunked), context.get());
  result.owned_ = std::move(context);
  return result;
}

void ExecContext::throw_no_context(Device device) {
  throw InternalError("an operation runs on {}, but its ExecContext has no CudaContext", to_string(device));
}

}  // namespace longhaul
