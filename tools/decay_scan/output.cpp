// See output.h.
#include "tools/decay_scan/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace longhaul::decay {
namespace {

std::string_view name_of(Precision precision) { return enum_names(precision)[static_cast<size_t>(precision)].second; }

// The largest error of some outputs.
double largest(const ScanRow& row, std::initializer_list<Output> outputs) {
  double error = 0;
  for (const Output output : outputs) {
    error = std::max(error, row.worst[static_cast<size_t>(output)].error);
  }
  return error;
}

std::string error_text(double error) { return std::isfinite(error) ? fmt::format("{:.1e}", error) : "inf"; }

// "0", "0.03 %", "12 %"
std::string share_text(int64_t count, int64_t of) {
  if (count == 0) {
    return "0";
  }
  const double percent = 100 * static_cast<double>(count) / static_cast<double>(of);
  return percent < 0.01 ? "<0.01 %" : fmt::format("{:.2g} %", percent);
}

// Infinite errors, which JSON cannot hold, are null.
nlohmann::ordered_json number(double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr); }

}  // namespace

std::string head_text() {
  return fmt::format("{:>6}{:>6}{:>6}{:>11}{:>9}{:>10}{:>10}{:>11}{:>10}  {}\n", "bound", "tile", "type", "reciprocal", "overflow", "underflow",
                     "o, state", "dq,dk,dv", "dg,dbeta", "verdict");
}

std::string row_text(const ScanRow& row) {
  const FactorRange& r = row.range;
  return fmt::format("{:>6.4g}{:>6}{:>6}{:>11}{:>9}{:>10}{:>10}{:>11}{:>10}  {}: {}\n", row.setting.bound, row.setting.tile, name_of(row.setting.precision),
                     fmt::format("e^{:.4g}", r.log_reciprocal), share_text(r.overflows, r.columns), share_text(r.underflows, r.rows),
                     error_text(largest(row, {Output::O, Output::FinalState})),
                     error_text(largest(row, {Output::DQ, Output::DK, Output::DV, Output::DInitialState})),
                     error_text(largest(row, {Output::DG, Output::DBeta})), row.is_safe ? "safe" : "unsafe", row.reason);
}

nlohmann::ordered_json to_json(const ScanRow& row) {
  nlohmann::ordered_json errors;
  for (size_t output = 0; output < kOutputs; ++output) {
    errors[std::string(kOutputNames[output])] = {
        {"error", number(row.worst[output].error)}, {"limit", kOutputLimits[output]}, {"problem", row.worst[output].problem}};
  }
  return {{"bound", row.setting.bound},
          {"tile", row.setting.tile},
          {"dtype", name_of(row.setting.precision)},
          {"log_reciprocal", row.range.log_reciprocal},
          {"row_operands", row.range.rows},
          {"column_operands", row.range.columns},
          {"underflows", row.range.underflows},
          {"overflows", row.range.overflows},
          {"errors", errors},
          {"verdict", row.is_safe ? "safe" : "unsafe"},
          {"reason", row.reason}};
}

std::string not_offered_text(const Setting& s) {
  return fmt::format("{:>6.4g}{:>6}{:>6}  not run: the kernels compute in bf16 with tiles of 16 rows\n", s.bound, s.tile, name_of(s.precision));
}

nlohmann::ordered_json not_offered_json(const Setting& s) {
  return {{"bound", s.bound}, {"tile", s.tile}, {"dtype", name_of(s.precision)}, {"verdict", "not run"}};
}

std::string layer_head_text() {
  return fmt::format("{:>6}{:>15}{:>12}{:>13}{:>20}{:>20}\n", "layer", "smallest gate", "mean gate", "at bound", "reciprocal, 16 rows", "reciprocal, 64 rows");
}

std::string text_of(const LayerGates& l) {
  return fmt::format("{:>6}{:>15.3f}{:>12.3f}{:>13}{:>20}{:>20}\n", l.layer, l.smallest, l.mean, fmt::format("{:.2f} %", 100 * l.near_bound),
                     fmt::format("e^{:.4g}", l.log_reciprocal_16), fmt::format("e^{:.4g}", l.log_reciprocal_64));
}

nlohmann::ordered_json to_json(const LayerGates& l) {
  return {{"layer", l.layer},
          {"smallest_gate", l.smallest},
          {"mean_gate", l.mean},
          {"share_within_1_percent_of_bound", l.near_bound},
          {"log_reciprocal_16_rows", l.log_reciprocal_16},
          {"log_reciprocal_64_rows", l.log_reciprocal_64}};
}

std::string first_unsafe_head_text() { return fmt::format("{:>6}{:>6}{:>14}{:>16}  {}\n", "tile", "type", "first unsafe", "range ends at", "reason"); }

std::string text_of(const FirstUnsafe& f) {
  return fmt::format("{:>6}{:>6}{:>14}{:>16.2f}  {}\n", f.tile, name_of(f.precision), f.row ? fmt::format("{:.2f}", f.row->setting.bound) : "none",
                     f.overflow_bound, f.row ? f.row->reason : fmt::format("safe down to {:g}", kLastBound));
}

nlohmann::ordered_json to_json(const FirstUnsafe& f) {
  nlohmann::ordered_json out = {{"tile", f.tile}, {"dtype", name_of(f.precision)}, {"range_ends_at", number(f.overflow_bound)}, {"first_unsafe", nullptr}};
  if (f.row) {
    out["first_unsafe"] = f.row->setting.bound;
    out["row"] = to_json(*f.row);
  }
  return out;
}

}  // namespace longhaul::decay
