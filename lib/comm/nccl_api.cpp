// See nccl_api.h.
#include "comm/nccl_api.h"

#include <dlfcn.h>

#include "base/error.h"

namespace longhaul {

namespace {

void* open_library() {
  // First as the system finds it, then where it was when the program was built.
  for (const char* name : {"libnccl.so.2", LH_NCCL_LIBRARY}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      return library;
    }
  }
  const char* reason = dlerror();
  throw DeviceError("NCCL cannot be loaded: {}; install NCCL 2, put its folder on LD_LIBRARY_PATH, or use `communicator: staged`",
                    reason == nullptr ? "libnccl.so.2 was not found" : reason);
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw DeviceError("the NCCL library that was loaded has no {}; install NCCL {}.{} or later, or use `communicator: staged`", name,
                      NCCL_MAJOR, NCCL_MINOR);
  }
}

}  // namespace

NcclApi NcclApi::load() {
  void* const library = open_library();
  NcclApi api;
  find(library, "ncclGetUniqueId", api.get_unique_id);
  find(library, "ncclCommInitRank", api.comm_init_rank);
  find(library, "ncclCommDestroy", api.comm_destroy);
  find(library, "ncclCommAbort", api.comm_abort);
  find(library, "ncclCommGetAsyncError", api.comm_get_async_error);
  find(library, "ncclGetErrorString", api.get_error_string);
  find(library, "ncclGetLastError", api.get_last_error);
  find(library, "ncclAllReduce", api.all_reduce);
  find(library, "ncclReduceScatter", api.reduce_scatter);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclBroadcast", api.broadcast);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  return api;
}

}  // namespace longhaul
