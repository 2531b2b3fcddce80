// One chart as SVG text: lines or marks over steps, stage boundaries, reference lines, axes and a legend.
//
// Colours are classes, not values: the style sheet (style.h) gives them for light and dark. An SVG for a page leaves the
// style to the page; a standalone file carries it and a background.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/axis.h"
#include "report/series.h"

namespace longhaul::report {

enum class Ink : uint8_t { Blue, Orange, Green, Violet, Red, Teal };
enum class Draw : uint8_t {
  Line,
  FaintLine,       // behind, the raw values of a smoothed line
  LineWithPoints,  // few points, each with a mark that shows its value when pointed at
};

struct Series {
  std::string name;  // in the legend; empty: not there
  Ink ink = Ink::Blue;
  Draw draw = Draw::Line;
  std::vector<Point> points;  // ascending in x
};

// A vertical line with a label to its right: where a stage begins.
struct Boundary {
  double x = 0;
  std::string label;
};

// A horizontal line with a label on it.
struct Reference {
  std::string label;
  double y = 0;
};

struct Chart {
  std::string title;
  std::string unit;  // of y, beside the title
  std::vector<Series> series;
  std::vector<Boundary> boundaries;
  std::vector<Reference> references;
  int64_t first_step = 1, last_step = 2;  // range of x
  Baseline baseline = Baseline::Data;
  double log_above = 0;  // scale is logarithmic when the largest value is this many times the median; 0: never
  int width = 520, height = 250;
};

enum class SvgUse : uint8_t { InPage, Standalone };

// Without a finite value the chart says so instead of drawing axes.
[[nodiscard]] std::string to_svg(const Chart& chart, SvgUse use);

}  // namespace longhaul::report
