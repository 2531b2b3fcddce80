// See run_charts.h.
#include "report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace longhaul::report {
namespace {

// From this many steps on a line is drawn as its moving mean, with the values themselves faint behind it.
constexpr int64_t kSmoothFrom = 100;
// Up to this many steps each one has a mark that shows its value.
constexpr int64_t kPointsUpTo = 40;

std::vector<Point> points_of(const RunRecord& run, double StepRecord::* field, double factor = 1) {
  std::vector<Point> points;
  for (const StepRecord& step : run.steps) {
    points.push_back({.x = static_cast<double>(step.step), .y = factor * step.*field});
  }
  return points;
}

int64_t window_of(const RunRecord& run) { return std::max<int64_t>(5, std::ssize(run.steps) / 50); }

// The moving mean within each stage, because a quantity may jump where the next one begins.
std::vector<Point> smoothed(const RunRecord& run, const std::vector<Point>& points) {
  std::vector<Point> out;
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    while (end < points.size() && run.steps[end].stage == run.steps[begin].stage) {
      ++end;
    }
    const std::vector<Point> stage(points.begin() + static_cast<std::ptrdiff_t>(begin), points.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<Point> mean = moving_mean(stage, window_of(run));
    out.insert(out.end(), mean.begin(), mean.end());
  }
  return out;
}

// `name` is that of the values in the legend.
void add_line(const RunRecord& run, Chart& chart, const std::string& name, Ink ink, std::vector<Point> points) {
  if (std::ssize(points) < kSmoothFrom) {
    const Draw draw = std::ssize(points) <= kPointsUpTo ? Draw::LineWithPoints : Draw::Line;
    chart.series.push_back({.name = name, .ink = ink, .draw = draw, .points = std::move(points)});
    return;
  }
  std::vector<Point> mean = smoothed(run, points);
  chart.series.push_back({.name = name, .ink = ink, .draw = Draw::FaintLine, .points = std::move(points)});
  chart.series.push_back({.name = fmt::format("mean of {} steps", window_of(run)), .ink = ink, .draw = Draw::Line, .points = std::move(mean)});
}

enum class Labels : uint8_t { Yes, No };

std::vector<Boundary> boundaries_of(const RunRecord& run, Labels labels) {
  std::vector<Boundary> boundaries;
  for (const StageRecord& stage : run.stages) {
    boundaries.push_back({.x = static_cast<double>(stage.first_step), .label = labels == Labels::Yes && run.stages.size() > 1 ? "stage " + stage.name : ""});
  }
  return boundaries;
}

// A chart without lines yet, over the steps of the run.
Chart chart_of(const RunRecord& run, std::string title, std::string unit, Baseline baseline, double log_above) {
  Chart chart{.title = std::move(title), .unit = std::move(unit), .boundaries = boundaries_of(run, Labels::No), .baseline = baseline, .log_above = log_above};
  if (!run.steps.empty()) {
    chart.first_step = run.steps.front().step;
    chart.last_step = run.steps.back().step;
  }
  return chart;
}

// The values of a step alone, where the title says what they are.
Chart line_chart(const RunRecord& run, Chart chart, Ink ink, std::vector<Point> points) {
  add_line(run, chart, "", ink, std::move(points));
  return chart;
}

// Not smoothed: a planned quantity, or one that moves in steps.
Chart plain_chart(Chart chart, Ink ink, std::vector<Point> points) {
  chart.series.push_back({.name = "", .ink = ink, .draw = Draw::Line, .points = std::move(points)});
  return chart;
}

Chart memory_chart(const RunRecord& run) {
  constexpr double kGibibyte = 1 << 30;
  double largest = 0;
  for (const StepRecord& step : run.steps) {
    largest = step.peak_memory_bytes > largest ? step.peak_memory_bytes : largest;
  }
  const bool is_large = largest >= 4 * kGibibyte;
  return plain_chart(chart_of(run, "Peak memory", is_large ? "GiB, rank with the most" : "MiB, rank with the most", Baseline::Zero, 0), Ink::Green,
                     points_of(run, &StepRecord::peak_memory_bytes, (is_large ? 1 : 1024) / kGibibyte));
}

}  // namespace

Chart loss_chart(const RunRecord& run, const std::vector<Reference>& references) {
  Chart chart = chart_of(run, "Loss", "nats a token", Baseline::Data, 20);
  chart.width = 1060;
  chart.height = 400;
  chart.references = references;
  chart.boundaries = boundaries_of(run, Labels::Yes);
  add_line(run, chart, "training", Ink::Blue, points_of(run, &StepRecord::loss));
  std::vector<Point> validation;
  for (const ValidationRecord& record : run.validations) {
    validation.push_back({.x = static_cast<double>(record.step), .y = record.loss});
    chart.first_step = std::min(chart.first_step, std::max<int64_t>(record.step, 1));
    chart.last_step = std::max(chart.last_step, record.step);
  }
  if (!validation.empty()) {
    chart.series.push_back({.name = "validation", .ink = Ink::Orange, .draw = Draw::LineWithPoints, .points = std::move(validation)});
  }
  return chart;
}

std::vector<Chart> detail_charts(const RunRecord& run) {
  const auto points = [&](double StepRecord::* field, double factor = 1) { return points_of(run, field, factor); };
  return {
      line_chart(run, chart_of(run, "Gradient norm", "before clipping", Baseline::Zero, 10), Ink::Violet, points(&StepRecord::gradient_norm)),
      plain_chart(chart_of(run, "Learning rate", "", Baseline::Zero, 0), Ink::Green, points(&StepRecord::learning_rate)),
      line_chart(run, chart_of(run, "Throughput", "tokens a second, all ranks", Baseline::Zero, 0), Ink::Teal, points(&StepRecord::tokens_per_second)),
      line_chart(run, chart_of(run, "Step time", "seconds", Baseline::Zero, 8), Ink::Teal, points(&StepRecord::step_ms, 1e-3)),
      line_chart(run, chart_of(run, "Expert load violation", "max / mean - 1", Baseline::Zero, 10), Ink::Red, points(&StepRecord::max_violation)),
      memory_chart(run),
  };
}

}  // namespace longhaul::report
