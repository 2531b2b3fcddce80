// What a run directory says about its run: metrics.jsonl read line by line into tables, and the recipe's text.
//
// After a resume the file goes on, and steps done twice appear twice: the last line of a step wins, here for steps,
// validations and checkpoints alike. A line that is not a JSON object (a run that was killed while writing) is skipped
// and counted. Numbers that are missing or null are NaN, so that nobody mistakes them for zero.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace longhaul::report {

inline constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

struct StepRecord {
  int64_t step = 0;  // from 1
  std::string stage;
  int64_t sequence_length = 0;
  double loss = kMissing;  // nats a target
  double gradient_norm = kMissing;
  double learning_rate = kMissing;
  double tokens = kMissing;  // since the start of the run
  double tokens_per_second = kMissing;
  double step_ms = kMissing;
  double peak_memory_bytes = kMissing;
  double tflops_per_rank = kMissing;
  double mfu = kMissing;
  double max_violation = kMissing;
};

struct ValidationRecord {
  int64_t step = 0;
  std::string stage;
  double loss = kMissing;           // nats a target
  double bits_per_byte = kMissing;  // missing where a token is not a byte
  double targets = kMissing;
  double seconds = kMissing;
};

struct StageRecord {
  std::string name;
  int64_t sequence_length = 0;
  int64_t first_step = 0, last_step = 0;  // as planned
  std::string grid;
};

struct CheckpointRecord {
  int64_t step = 0;
  std::string path;
  double bytes = kMissing;
  double seconds = kMissing;
};

struct ResumeRecord {
  int64_t step = 0;
  std::string checkpoint;
};

struct WarningRecord {
  int64_t after_step = 0;  // the last step in the file before the warning; 0: before the first
  std::string message;
};

struct EndRecord {
  std::string reason;
  int64_t step = 0;
};

struct RunRecord {
  std::filesystem::path directory;
  std::string name;     // of the header; the directory's name without one
  std::string backend;  // empty: unknown
  double world_size = kMissing;
  double parameters = kMissing, active_parameters = kMissing;
  double total_steps = kMissing, total_tokens = kMissing;  // as planned
  std::string recipe;                                      // recipe.yaml, or the header's copy
  std::vector<StepRecord> steps;                           // ascending, each step once
  std::vector<ValidationRecord> validations;               // ascending, each step once
  std::vector<CheckpointRecord> checkpoints;               // ascending, each step once
  std::vector<StageRecord> stages;                         // by first step, each name once
  std::vector<ResumeRecord> resumes;                       // in the order of the file
  std::vector<WarningRecord> warnings;                     // in the order of the file
  std::optional<EndRecord> end;                            // absent while the run goes on, or when it was killed
  int64_t skipped_lines = 0;                               // not a JSON object, or without what its type needs
};

// Throws DataError when the directory or its metrics.jsonl is missing or cannot be read.
[[nodiscard]] RunRecord read_run(const std::filesystem::path& directory);

}  // namespace longhaul::report
