// See output.h.
#include "tools/bench/output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace longhaul::bench {
namespace {

const char* name_of(Direction direction) { return direction == Direction::Forward ? "forward" : "backward"; }

std::string dtype_name(DType dtype) { return dtype == DType::F64 ? "fp64" : "fp32"; }

double share_of_ceiling(const Row& row, const Ceiling& ceiling) {
  return bound_of(row.flops, row.bytes, ceiling).seconds / row.timing.median_seconds;
}

std::string shares_text(const std::string& title, const std::vector<StepShare>& shares) {
  double total = 0;
  for (const StepShare& share : shares) {
    total += share.seconds;
  }
  std::string text = fmt::format("\n{:<20}{:>8}{:>12}{:>10}\n", title, "share", "ms", "calls");
  for (const StepShare& share : shares) {
    text += fmt::format("{:<20}{:>6.1f} %{:>12.2f}{:>10}\n", share.name, 100 * share.seconds / total, share.seconds * 1e3,
                        share.calls > 0 ? std::to_string(share.calls) : "");
  }
  return text;
}

nlohmann::ordered_json shares_json(const std::vector<StepShare>& shares) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const StepShare& share : shares) {
    out[share.name] = {{"ms", share.seconds * 1e3}, {"calls", share.calls}};
  }
  return out;
}

}  // namespace

std::string ceiling_text(const Ceiling& ceiling, DType dtype) {
  return fmt::format("ceiling of one thread: {:.1f} GFLOP/s in a large matrix product ({}), {:.1f} GB/s in a copy\n", ceiling.flops * 1e-9,
                     dtype_name(dtype), ceiling.bytes * 1e-9);
}

std::string head_text() {
  return fmt::format("{:<14}{:<10}{:<36}{:<6}{:>11}{:>9}{:>10}{:>10}{:>10}{:>8}  {}\n", "operation", "direction", "sizes", "dtype", "median ms",
                     "repeats", "GFLOP", "MB", "GFLOP/s", "GB/s", "of the ceiling");
}

std::string row_text(const Row& row, const Ceiling& ceiling) {
  const double seconds = row.timing.median_seconds;
  return fmt::format("{:<14}{:<10}{:<36}{:<6}{:>11.3f}{:>9}{:>10.3f}{:>10.2f}{:>10.2f}{:>8.2f}  {:.0f} % ({})\n", row.operation,
                     name_of(row.direction), row.sizes, dtype_name(row.dtype), seconds * 1e3, row.timing.repeats, row.flops * 1e-9,
                     row.bytes * 1e-6, row.flops / seconds * 1e-9, row.bytes / seconds * 1e-9, 100 * share_of_ceiling(row, ceiling),
                     bound_of(row.flops, row.bytes, ceiling).is_compute ? "compute" : "memory");
}

std::string step_text(const StepMeasurement& step, const Ceiling& ceiling) {
  const double seconds = step.timing.median_seconds;
  return fmt::format("step of stage {}: {} tokens in sequences of {}, one rank, {}, {} parameters\n", step.stage, step.tokens, step.sequence_length,
                     dtype_name(step.dtype), step.parameters) +
         fmt::format("median {:.1f} ms of {} steps, {:.0f} tokens/s, {:.3f} GFLOP, {:.2f} GFLOP/s, {:.0f} % of the ceiling\n", seconds * 1e3,
                     step.timing.repeats, static_cast<double>(step.tokens) / seconds, step.flops * 1e-9, step.flops / seconds * 1e-9,
                     100 * step.flops / seconds / ceiling.flops) +
         shares_text("by layer", step.layers) + shares_text("by operation", step.operations);
}

nlohmann::ordered_json to_json(const Ceiling& ceiling) { return {{"gflops", ceiling.flops * 1e-9}, {"gb_per_second", ceiling.bytes * 1e-9}}; }

nlohmann::ordered_json to_json(const Row& row, const Ceiling& ceiling) {
  const double seconds = row.timing.median_seconds;
  return {{"op", row.operation},
          {"direction", name_of(row.direction)},
          {"shape", row.sizes},
          {"dtype", dtype_name(row.dtype)},
          {"median_ms", seconds * 1e3},
          {"best_ms", row.timing.best_seconds * 1e3},
          {"repeats", row.timing.repeats},
          {"flops", row.flops},
          {"bytes", row.bytes},
          {"gflops", row.flops / seconds * 1e-9},
          {"gb_per_second", row.bytes / seconds * 1e-9},
          {"bound", bound_of(row.flops, row.bytes, ceiling).is_compute ? "compute" : "memory"},
          {"share_of_ceiling", share_of_ceiling(row, ceiling)}};
}

nlohmann::ordered_json to_json(const StepMeasurement& step, const Ceiling& ceiling) {
  const double seconds = step.timing.median_seconds;
  return {{"op", "step"},
          {"stage", step.stage},
          {"dtype", dtype_name(step.dtype)},
          {"parameters", step.parameters},
          {"sequence_length", step.sequence_length},
          {"tokens", step.tokens},
          {"median_ms", seconds * 1e3},
          {"best_ms", step.timing.best_seconds * 1e3},
          {"repeats", step.timing.repeats},
          {"tokens_per_second", static_cast<double>(step.tokens) / seconds},
          {"flops", step.flops},
          {"gflops", step.flops / seconds * 1e-9},
          {"share_of_ceiling", step.flops / seconds / ceiling.flops},
          {"by_layer", shares_json(step.layers)},
          {"by_operation", shares_json(step.operations)}};
}

}  // namespace longhaul::bench
