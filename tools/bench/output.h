// What bench prints: rows for people, or JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/bench/measure.h"
#include "tools/bench/operation.h"
#include "tools/bench/step.h"

namespace longhaul::bench {

struct Row {
  std::string operation;
  Direction direction = Direction::Forward;
  std::string sizes;
  DType dtype = DType::F32;
  double flops = 0, bytes = 0;
  Timing timing;
};

[[nodiscard]] std::string ceiling_text(const Ceiling& ceiling, DType dtype);
[[nodiscard]] std::string head_text();
[[nodiscard]] std::string row_text(const Row& row, const Ceiling& ceiling);
[[nodiscard]] std::string step_text(const StepMeasurement& step, const Ceiling& ceiling);

[[nodiscard]] nlohmann::ordered_json to_json(const Ceiling& ceiling);
[[nodiscard]] nlohmann::ordered_json to_json(const Row& row, const Ceiling& ceiling);
[[nodiscard]] nlohmann::ordered_json to_json(const StepMeasurement& step, const Ceiling& ceiling);

}  // namespace longhaul::bench
