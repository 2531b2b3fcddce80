// The report of a run: one HTML page that needs nothing else, with charts drawn as SVG inside it.
#pragma once

#include <string>
#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace longhaul::report {

struct PageOptions {
  std::vector<Reference> references;  // horizontal lines in the chart of the loss, nats a token
  std::string version;                // of this program, for the foot of the page
};

[[nodiscard]] std::string to_html(const RunRecord& run, const PageOptions& options);

}  // namespace longhaul::report
