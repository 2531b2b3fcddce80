// Moving bytes between the host and a GPU.
#pragma once

#include <cstdint>

#include "device/cuda_stream.h"
#include "device/device.h"

namespace longhaul {

// One end of a copy.
struct Place {
  Device device;
  void* data = nullptr;
};

// Waits for all work on the GPUs involved, copies, and returns when the bytes are there. For tests, checkpoints and
// start-up; between two places on the host it is memmove.
void copy_bytes(Place from, Place to, int64_t bytes);
// The same for rows of `row_bytes` that lie *_stride bytes apart.
void copy_rows(Place from, int64_t from_stride, Place to, int64_t to_stride, int64_t row_bytes, int64_t rows);

// Sets all bytes to zero; waits like copy_bytes.
void clear_bytes(Place place, int64_t bytes);

// Enqueues the copy and returns. The host's memory must be pinned to overlap with work, and must stay until it is done.
void copy_bytes_async(StreamView stream, Place from, Place to, int64_t bytes);

}  // namespace longhaul
