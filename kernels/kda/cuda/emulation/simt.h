// Runs CUDA device code on the CPU, so that the kernels of this folder are tested where there is no GPU. Every thread of
// a block is a fiber; blocks run one after another, or in turns where they wait for each other. What a warp or a warpgroup does together (shuffles, matrix products,
// matrix loads) is a meeting: each lane leaves a pointer to its operands, the last one to arrive computes for all.
//
// It checks indices, fragment layouts, barriers and arithmetic. It cannot find a missing barrier for certain, because
// fibers switch only where they wait, nor anything about speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace simt {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

// Of the running thread.
extern Dim3 thread_index;
extern Dim3 block_index;
extern Dim3 block_size;
extern Dim3 grid_size;

// Dynamic shared memory of the running block, aligned to 1024 bytes; filled with NaN patterns before each block.
[[nodiscard]] std::byte* shared_memory();

// Runs `kernel` for every thread of every block. Throws std::runtime_error when the threads of a block wait for ever.
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel);
// The same with all blocks at once, for blocks that wait for each other.
void launch_together(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()>& kernel);

void yield();
void sync_block();
void sync_named(int barrier, int threads);

enum class Together : uint8_t { Warp, Warpgroup };
// Calls op(args) once per meeting with the args of all 32 or 128 lanes in order.
void meet(Together who, void* argument, void (*op)(void** arguments));

[[nodiscard]] inline int lane() { return static_cast<int>(thread_index.x % 32); }

}  // namespace simt
