// When checkpoints are written and how many are kept: the section `checkpoint` of a recipe.
#pragma once

#include <cstdint>

#include "base/enum_names.h"

namespace longhaul {

enum class Compression : uint8_t { None, Zstd };
constexpr EnumNames<Compression, 2> enum_names(Compression) {
  return {{{Compression::None, "none"}, {Compression::Zstd, "zstd"}}};
}

struct CheckpointOptions {
  int64_t every_steps = 100;  // 0: only between stages, at the end and on a signal
  int64_t keep = 3;           // newest ones; those at the end of a stage are kept besides
  int64_t major_every = 0;    // every so many steps a checkpoint is kept for good; 0: none
  bool async = false;
  int64_t staging_mib = 1024;  // a rank's buffer for what an asynchronous save has not written when the next update is due
  Compression compression = Compression::None;
};

template <class Visitor>
void describe(Visitor& v, CheckpointOptions& o) {
  v.field("every_steps", o.every_steps,
          "steps between checkpoints; 0 saves only at the end of a stage, at the end of the run and on a signal")
      .non_negative();
  v.field("keep", o.keep, "how many of the newest checkpoints to keep; the last one of every stage is kept besides").at_least(1);
  v.field("major_every", o.major_every, "checkpoints of steps that this number divides are never removed; 0: none").non_negative();
  v.field("async", o.async, "write checkpoints while training goes on; the last one of a stage or run is waited for");
  v.field("staging_mib", o.staging_mib,
          "MiB of host memory a rank for what an asynchronous save has not written when the next update is due; the rest holds the step")
      .at_least(16);
  v.field("compression", o.compression,
          "of the tensors in a checkpoint: none, or zstd, which takes a fifth less room and the time of one core for 0.5 GB/s a rank");
}

}  // namespace longhaul
