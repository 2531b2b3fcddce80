// See simt.h.
#include "kernels/kda/cuda/emulation/simt.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

namespace simt {

Dim3 thread_index;
Dim3 block_index;
Dim3 block_size;
Dim3 grid_size;

namespace {

constexpr size_t kStackBytes = 128 * 1024;

struct Meeting {
  std::vector<void*> arguments;
  int arrived = 0;
  int64_t generation = 0;
};

struct Fiber {
  ucontext_t start{};
  jmp_buf resume{};
  std::unique_ptr<std::byte[]> stack;
  bool started = false;
  bool finished = false;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Meeting> warps;
  std::vector<Meeting> warpgroups;
  std::map<int, Meeting> barriers;
  std::byte* shared = nullptr;
  const std::function<void()>* kernel = nullptr;
  unsigned running = 0;
  jmp_buf scheduler{};
  int64_t events = 0;  // anything that lets another fiber go on
};

Block block;

void fiber_main() {
  (*block.kernel)();
  block.fibers[block.running].finished = true;
  ++block.events;
  _longjmp(block.scheduler, 1);
}

void run(unsigned index) {
  block.running = index;
  thread_index.x = index;
  Fiber& fiber = block.fibers[index];
  if (_setjmp(block.scheduler) != 0) {
    return;
  }
  if (fiber.started) {
    _longjmp(fiber.resume, 1);
  }
  fiber.started = true;
  setcontext(&fiber.start);
}

void run_block() {
  unsigned left = block_size.x;
  int idle_rounds = 0;
  while (left > 0) {
    const int64_t before = block.events;
    left = 0;
    for (unsigned i = 0; i < block_size.x; ++i) {
      if (!block.fibers[i].finished) {
        run(i);
        left += block.fibers[i].finished ? 0 : 1;
      }
    }
    idle_rounds = block.events == before ? idle_rounds + 1 : 0;
    if (idle_rounds > 4) {
      throw std::runtime_error("simt: the threads of a block wait for ever");
    }
  }
}

// Waits in `meeting` until `count` fibers have arrived.
void arrive(Meeting& meeting, int slot, int count, void* argument, void (*op)(void**)) {
  if (meeting.arguments.size() < static_cast<size_t>(count)) {
    meeting.arguments.resize(static_cast<size_t>(count));
  }
  if (op != nullptr) {
    meeting.arguments[static_cast<size_t>(slot)] = argument;
  }
  const int64_t generation = meeting.generation;
  if (++meeting.arrived == count) {
    if (op != nullptr) {
      op(meeting.arguments.data());
    }
    meeting.arrived = 0;
    ++meeting.generation;
    ++block.events;
    return;
  }
  while (meeting.generation == generation) {
    yield();
  }
}

}  // namespace

std::byte* shared_memory() { return block.shared; }

void yield() {
  Fiber& fiber = block.fibers[block.running];
  if (_setjmp(fiber.resume) == 0) {
    _longjmp(block.scheduler, 1);
  }
}

void note_event() { ++block.events; }

void sync_block() { arrive(block.barriers[0], 0, static_cast<int>(block_size.x), nullptr, nullptr); }

void sync_named(int barrier, int threads) { arrive(block.barriers[barrier], 0, threads, nullptr, nullptr); }

void meet(Together who, void* argument, void (*op)(void** arguments)) {
  const auto t = static_cast<size_t>(thread_index.x);
  if (who == Together::Warp) {
    arrive(block.warps[t / 32], static_cast<int>(t % 32), 32, argument, op);
    return;
  }
  arrive(block.warpgroups[t / 128], static_cast<int>(t % 128), 128, argument, op);
}

void launch(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel) {
  block_size = {.x = threads};
  grid_size = {.x = blocks};
  block.fibers = std::vector<Fiber>(threads);
  for (Fiber& fiber : block.fibers) {
    fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  }
  const size_t size = (shared_bytes + 1023) / 1024 * 1024 + 1024;
  std::unique_ptr<std::byte, decltype(&std::free)> shared(static_cast<std::byte*>(std::aligned_alloc(1024, size)), &std::free);
  block.shared = shared.get();
  block.kernel = &kernel;
  for (unsigned b = 0; b < blocks; ++b) {
    block_index = {.x = b, .y = 0, .z = 0};
    std::memset(block.shared, 0xff, size);
    block.warps.assign((threads + 31) / 32, {});
    block.warpgroups.assign((threads + 127) / 128, {});
    block.barriers.clear();
    for (Fiber& fiber : block.fibers) {
      fiber.started = false;
      fiber.finished = false;
      getcontext(&fiber.start);
      fiber.start.uc_stack.ss_sp = fiber.stack.get();
      fiber.start.uc_stack.ss_size = kStackBytes;
      fiber.start.uc_link = nullptr;
      makecontext(&fiber.start, fiber_main, 0);
    }
    run_block();
  }
  block.kernel = nullptr;
  block.shared = nullptr;
}

}  // namespace simt
