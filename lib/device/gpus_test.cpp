// GPUs are found or none are; streams order work; memory moves and runs out by name. GPU cases are skipped without one.
#include "device/gpus.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/buffer.h"
#include "device/copy_bytes.h"
#include "device/exec_context.h"
#include "device/pinned_buffer.h"

using namespace longhaul;

namespace {

constexpr Device kGpu{DeviceKind::Cuda, 0};

std::vector<int32_t> counted(size_t n) {
  std::vector<int32_t> values(n);
  std::iota(values.begin(), values.end(), 7);
  return values;
}

}  // namespace

TEST_CASE("the query for GPUs works everywhere", "[device]") {
  const std::vector<GpuInfo> gpus = find_gpus();
  CHECK((describe_gpus() == "none") == gpus.empty());
  CHECK_THROWS_AS(memory_of({DeviceKind::Cuda, static_cast<int>(gpus.size())}), DeviceError);
  for (const GpuInfo& gpu : gpus) {
    CHECK(gpu.multiprocessors > 0);
    CHECK(gpu.total_bytes > 0);
  }
}

TEST_CASE("planning for a GPU needs none, executing without a context is an error", "[device]") {
  ExecContext plan = ExecContext::plan(kGpu);
  CHECK(plan.scratch().take_bytes("anything", 1000) == nullptr);
  CHECK_THROWS_AS(plan.cuda_context(), InternalError);
}

TEST_CASE("copies between places on the host", "[device]") {
  std::vector<int32_t> source = counted(12), target(9, -1);
  copy_bytes({Device{}, source.data()}, {Device{}, target.data()}, 8);
  CHECK(target == std::vector<int32_t>{7, 8, -1, -1, -1, -1, -1, -1, -1});
}

TEST_CASE("memory to stage data in is there without a GPU too, and moves with its owner", "[device]") {
  PinnedBuffer buffer(Device{}, 100);
  CHECK(buffer.bytes() == 100);
  std::fill_n(buffer.data(), 100, std::byte{7});
  const std::byte* const memory = buffer.data();
  PinnedBuffer other = std::move(buffer);
  CHECK(other.data() == memory);
  CHECK(other.data()[99] == std::byte{7});
  other = PinnedBuffer(Device{}, 0);
  CHECK(other.data() == nullptr);
  if (find_gpus().empty()) {
    CHECK_THROWS_AS(PinnedBuffer(kGpu, 100), DeviceError);
  }
}

TEST_CASE("bytes travel to a GPU and back, in rows too", "[device][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const std::vector<int32_t> source = counted(1000);
  std::vector<int32_t> back(1000, 0);
  const Buffer memory(kGpu, 4000);
  copy_bytes({Device{}, const_cast<int32_t*>(source.data())}, {kGpu, memory.data()}, 4000);
  copy_bytes({kGpu, memory.data()}, {Device{}, back.data()}, 4000);
  CHECK(back == source);
  std::vector<int32_t> rows(20, -1);  // the first 3 of each 10, 5 rows, into rows of 4
  copy_rows({kGpu, memory.data()}, 40, {Device{}, rows.data()}, 16, 12, 5);
  CHECK(rows[0] == 7);
  CHECK(rows[2] == 9);
  CHECK(rows[3] == -1);
  CHECK(rows[16] == 47);

  CudaContext context(kGpu);
  std::vector<int32_t> late(1000, 0);
  CudaEvent done(kGpu);
  copy_bytes_async(context.stream(), {kGpu, memory.data()}, {Device{}, late.data()}, 4000);
  done.record(context.stream());
  const CudaStream other(kGpu);
  other.view().wait(done);
  other.view().synchronize();
  CHECK(done.is_done());
  CHECK(late == source);

  clear_bytes({kGpu, memory.data() + 400}, 3200);
  copy_bytes({kGpu, memory.data()}, {Device{}, back.data()}, 4000);
  CHECK(std::count(back.begin(), back.end(), 0) == 800);
  CHECK(back[99] == source[99]);
  CHECK(back[900] == source[900]);
}

TEST_CASE("more memory than the GPU has is out of memory, with the bytes", "[device][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const int64_t too_much = 2 * find_gpus()[0].total_bytes;
  try {
    const Buffer buffer(kGpu, too_much);
    FAIL("must throw");
  } catch (const OutOfMemoryError& error) {
    CHECK(std::string(error.what()).find(std::to_string(too_much)) != std::string::npos);
  }
  CHECK(memory_of(kGpu).free_bytes > 0);  // the error does not stick
}
