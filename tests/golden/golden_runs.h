// How each folder of tests/golden is computed with our operations and layers. A run takes the arguments from the case
// and writes what it promised; golden_test.cpp calls it for every file of the folder in double and in float, and
// compares. A folder may have several runs, where an operation has several forms.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "device/exec_context.h"
#include "tests/support/golden_case.h"

namespace longhaul::testing {

using GoldenRun = std::function<void(ExecContext&, GoldenCase&)>;
using GoldenRuns = std::multimap<std::string, GoldenRun>;  // by folder

[[nodiscard]] GoldenRuns basic_runs();      // basic_runs.cpp: norms, activations, convolution, embedding, loss, AdamW, residual mix
[[nodiscard]] GoldenRuns attention_runs();  // attention_runs.cpp: Kimi Delta Attention, softmax attention
[[nodiscard]] GoldenRuns routing_runs();    // routing_runs.cpp: router, Quantile Balancing
[[nodiscard]] GoldenRuns layer_runs();      // layer_runs.cpp: whole layers

}  // namespace longhaul::testing
