// See placement.h.
#include "train/placement.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "device/gpus.h"

namespace longhaul {
namespace {

// What CUDA, cuBLAS and a communicator take before the first tensor.
constexpr int64_t kRuntimeBytes = int64_t{1} << 30;

bool may_share_gpus(const Recipe& recipe, const HostComm& world) {
  return world.size() == 1 || recipe.runtime.communicator == Communicator::Staged;
}

int64_t ranks_on_gpu(const HostComm& world, Device device) {
  const auto gpus = static_cast<int>(find_gpus().size());
  return (world.local_size() - device.index + gpus - 1) / gpus;
}

// The largest class of memory, and the key that makes it smaller.
std::string largest_class(const RankMemory& memory) {
  struct Class {
    int64_t bytes;
    const char* name;
    const char* remedy;
  };
  const std::array<Class, 3> classes{
      {{memory.activations, "activations", "a smaller parallel.micro_batch_tokens"},
       {memory.parameters + memory.gradients + memory.optimizer, "weights, gradients and optimizer state",
        "more parallel.pipeline or parallel.expert, or a smaller model"},
       {memory.scratch, "scratch", "a smaller parallel.micro_batch_tokens"}}};
  const Class& largest = *std::max_element(classes.begin(), classes.end(), [](const Class& a, const Class& b) { return a.bytes < b.bytes; });
  return fmt::format("{} take {:.1f} GiB of them; use {}", largest.name, static_cast<double>(largest.bytes) / (1 << 30), largest.remedy);
}

// Ranks of a host share its memory. Which pipeline positions they have is not known here; the mean of all stands for each.
void require_host_memory(const Recipe& recipe, const RunPlan& plan, const HostComm& world) {
  const int64_t available = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  for (const StagePlan& stage : plan.stages) {
    RankMemory largest;
    double sum = 0;
    for (int p = 0; p < stage.grid.pipeline(); ++p) {
      const RankMemory memory = plan_memory(recipe, stage, p);
      sum += static_cast<double>(memory.total());
      largest = memory.total() > largest.total() ? memory : largest;
    }
    const double wanted = sum / stage.grid.pipeline() * world.local_size();
    if (wanted > static_cast<double>(available)) {
      throw OutOfMemoryError("stage {} needs {:.1f} GiB for the {} ranks of this host, which has {:.1f} GiB: in the largest rank {}", stage.name,
                             wanted / (1 << 30), world.local_size(), static_cast<double>(available) / (1 << 30), largest_class(largest));
    }
  }
}

}  // namespace

Device place_rank(const Recipe& recipe, const HostComm& world) {
  if (recipe.runtime.backend == Backend::Cpu) {
    return Device{};
  }
  const std::vector<GpuInfo> gpus = find_gpus();
  if (gpus.empty()) {
    throw DeviceError("runtime.backend is cuda, but this host has no GPU that this program can use (no device, no driver, or a build without "
                      "CUDA); use --set runtime.backend=cpu");
  }
  const auto count = static_cast<int>(gpus.size());
  if (world.local_size() > count && !may_share_gpus(recipe, world)) {
    throw DeviceError("{} ranks on this host, but only {} visible GPUs, and NCCL wants one for each; start {} ranks a host, or use "
                      "--set runtime.communicator=staged, which is slow",
                      world.local_size(), count, count);
  }
  return {.kind = DeviceKind::Cuda, .index = world.local_rank() % count};
}

void require_memory(const Recipe& recipe, const RunPlan& plan, const HostComm& world, Device device) {
  if (device.kind == DeviceKind::Cpu) {
    require_host_memory(recipe, plan, world);
    return;
  }
  const GpuInfo gpu = memory_of(device);
  const int64_t available = gpu.free_bytes / ranks_on_gpu(world, device) - kRuntimeBytes;
  for (const StagePlan& stage : plan.stages) {
    const int pipeline = stage.grid.coordinates(world.rank()).pipeline;
    const RankMemory memory = plan_memory(recipe, stage, pipeline);
    if (memory.total() > available) {
      throw OutOfMemoryError("stage {} needs {:.1f} GiB on pipeline position {}, but {} has {:.1f} GiB for it: {}", stage.name,
                             static_cast<double>(memory.total()) / (1 << 30), pipeline, to_string(device),
                             static_cast<double>(available) / (1 << 30), largest_class(memory));
    }
  }
}

GroupsOptions groups_options(const Recipe& recipe, CudaContext* cuda, CommJournal* journal) {
  const DataPlane plane = cuda == nullptr                                            ? DataPlane::Mpi
                          : recipe.runtime.communicator == Communicator::Staged ? DataPlane::Staged
                                                                                     : DataPlane::Nccl;
  return {.reduce_order = recipe.runtime.deterministic ? ReduceOrder::Fixed : ReduceOrder::Fast,
          .journal = journal,
          .data_plane = plane,
          .cuda = cuda};
}

}  // namespace longhaul
