// The charts of a run: which quantity, which scale, which marks.
#pragma once

#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace longhaul::report {

// Training and validation loss, the beginnings of stages, and `references`.
[[nodiscard]] Chart loss_chart(const RunRecord& run, const std::vector<Reference>& references);

// Gradient norm, learning rate, tokens per second, step time, load violation, memory.
[[nodiscard]] std::vector<Chart> detail_charts(const RunRecord& run);

}  // namespace longhaul::report
