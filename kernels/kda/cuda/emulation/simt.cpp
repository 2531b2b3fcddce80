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
  std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
  std::byte* shared = nullptr;
  const std::function<void()>* kernel = nullptr;
  unsigned index = 0;
  unsigned running = 0;
};

std::vector<Block> blocks;
Block* current = nullptr;
jmp_buf scheduler{};
int64_t events = 0;  // anything that lets another fiber go on

void fiber_main() {
  (*current->kernel)();
  current->fibers[current->running].finished = true;
  ++events;
  _longjmp(scheduler, 1);
}

void run(Block& block, unsigned index) {
  current = &block;
  block.running = index;
  thread_index.x = index;
  block_index.x = block.index;
  Fiber& fiber = block.fibers[index];
  if (_setjmp(scheduler) != 0) {
    return;
  }
  if (fiber.started) {
    _longjmp(fiber.resume, 1);
  }
  fiber.started = true;
  setcontext(&fiber.start);
}

void run_blocks() {
  unsigned left = 1;
  int idle_rounds = 0;
  while (left > 0) {
    const int64_t before = events;
    left = 0;
    for (Block& block : blocks) {
      for (unsigned i = 0; i < block_size.x; ++i) {
        if (!block.fibers[i].finished) {
          run(block, i);
          left += block.fibers[i].finished ? 0 : 1;
        }
      }
    }
    idle_rounds = events == before ? idle_rounds + 1 : 0;
    if (idle_rounds > 4) {
      throw std::runtime_error("simt: the threads of a block wait for ever");
    }
  }
}

void start(Block& block, unsigned index, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel) {
  const size_t size = (shared_bytes + 1023) / 1024 * 1024 + 1024;
  if (!block.memory) {
    block.memory.reset(static_cast<std::byte*>(std::aligned_alloc(1024, size)));
    block.fibers = std::vector<Fiber>(threads);
    for (Fiber& fiber : block.fibers) {
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    }
  }
  block.index = index;
  block.shared = block.memory.get();
  block.kernel = &kernel;
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
}

void launch_by(unsigned at_once, unsigned count, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel) {
  block_size = {.x = threads};
  grid_size = {.x = count};
  blocks.clear();
  blocks.resize(at_once);
  for (unsigned b = 0; b < count; b += at_once) {
    for (unsigned i = 0; i < at_once; ++i) {
      start(blocks[i], b + i, threads, shared_bytes, kernel);
    }
    run_blocks();
  }
  blocks.clear();
  current = nullptr;
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
    ++events;
    return;
  }
  while (meeting.generation == generation) {
    yield();
  }
}

}  // namespace

std::byte* shared_memory() { return current->shared; }

void yield() {
  Fiber& fiber = current->fibers[current->running];
  if (_setjmp(fiber.resume) == 0) {
    _longjmp(scheduler, 1);
  }
}

void note_event() { ++events; }

void sync_block() { arrive(current->barriers[0], 0, static_cast<int>(block_size.x), nullptr, nullptr); }

void sync_named(int barrier, int threads) { arrive(current->barriers[barrier], 0, threads, nullptr, nullptr); }

void meet(Together who, void* argument, void (*op)(void** arguments)) {
  const auto t = static_cast<size_t>(thread_index.x);
  if (who == Together::Warp) {
    arrive(current->warps[t / 32], static_cast<int>(t % 32), 32, argument, op);
    return;
  }
  arrive(current->warpgroups[t / 128], static_cast<int>(t % 128), 128, argument, op);
}

void launch(unsigned count, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel) {
  launch_by(1, count, threads, shared_bytes, kernel);
}

void launch_together(unsigned count, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel) {
  launch_by(count, count, threads, shared_bytes, kernel);
}

}  // namespace simt
