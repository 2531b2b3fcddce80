// See chart.h.
#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/markup.h"
#include "report/style.h"

namespace longhaul::report {
namespace {

constexpr std::array<const char*, 6> kInkClasses = {"blue", "orange", "green", "violet", "red", "teal"};
constexpr double kLetterWidth = 6.4;  // of the 12 px text, generously

const char* ink_class(Ink ink) { return kInkClasses[static_cast<size_t>(ink)]; }

// The part of the picture that values are drawn in, in pixels.
struct Plot {
  double left, right, top, bottom;
  Axis x, y;

  [[nodiscard]] double at_x(double value) const { return left + x.position(value) * (right - left); }
  [[nodiscard]] double at_y(double value) const { return bottom - y.position(value) * (bottom - top); }
};

// All values that the chart must show.
std::vector<double> finite_values(const Chart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (std::isfinite(point.y)) {
        values.push_back(point.y);
      }
    }
  }
  return values;
}

Axis make_value_axis(const Chart& chart, std::vector<double> values) {
  const Scale scale = chart.log_above > 0 ? fitting_scale(values, chart.log_above) : Scale::Linear;
  for (const Reference& reference : chart.references) {
    if (scale == Scale::Linear || reference.y > 0) {
      values.push_back(reference.y);
    }
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return value_axis(*low, *high, scale, chart.baseline, chart.height >= 320 ? 6 : 5);
}

// Labels of boundaries have a row of their own above the values.
bool has_labels(const Chart& chart) {
  return std::any_of(chart.boundaries.begin(), chart.boundaries.end(), [](const Boundary& boundary) { return !boundary.label.empty(); });
}

Plot make_plot(const Chart& chart, const Axis& y) {
  size_t widest = 1;
  for (const std::string& label : tick_labels(y)) {
    widest = std::max(widest, label.size());
  }
  return {.left = 14 + kLetterWidth * static_cast<double>(widest),
          .right = static_cast<double>(chart.width) - 14,
          .top = has_labels(chart) ? 54.0 : 38.0,
          .bottom = static_cast<double>(chart.height) - 40,
          .x = step_axis(chart.first_step, chart.last_step, chart.width >= 800 ? 10 : 6),
          .y = y};
}

void append_text(std::string& out, double x, double y, const char* anchor, const char* css_class, const std::string& text) {
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, css_class, escaped(text));
}

void append_line(std::string& out, double x1, double y1, double x2, double y2, const char* css_class) {
  out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2, css_class);
}

void append_axes(std::string& out, const Plot& plot) {
  const std::vector<std::string> y_labels = tick_labels(plot.y);
  for (size_t i = 0; i < y_labels.size(); ++i) {
    const double y = plot.at_y(plot.y.ticks[i]);
    append_line(out, plot.left, y, plot.right, y, "grid");
    append_text(out, plot.left - 7, y + 4, "end", "tick", y_labels[i]);
  }
  const std::vector<std::string> x_labels = tick_labels(plot.x);
  for (size_t i = 0; i < x_labels.size(); ++i) {
    const double x = plot.at_x(plot.x.ticks[i]);
    append_line(out, x, plot.bottom, x, plot.bottom + 4, "axis");
    append_text(out, x, plot.bottom + 18, "middle", "tick", x_labels[i]);
  }
  append_line(out, plot.left, plot.bottom, plot.right, plot.bottom, "axis");
  append_text(out, plot.right, plot.bottom + 33, "end", "tick", "step");
}

void append_boundaries(std::string& out, const Chart& chart, const Plot& plot) {
  double free_from = plot.left;
  for (const Boundary& boundary : chart.boundaries) {
    const double x = plot.at_x(boundary.x);
    if (x < plot.left - 0.5 || x > plot.right) {
      continue;
    }
    if (x > plot.left + 1) {
      append_line(out, x, plot.top - (boundary.label.empty() ? 4 : 18), x, plot.bottom, "boundary");
    }
    const double width = kLetterWidth * static_cast<double>(boundary.label.size()) + 8;
    if (x >= free_from && x + width <= plot.right + 10) {
      append_text(out, x + 5, plot.top - 9, "start", "label", boundary.label);
      free_from = x + width;
    }
  }
}

void append_references(std::string& out, const Chart& chart, const Plot& plot) {
  for (const Reference& reference : chart.references) {
    const double y = plot.at_y(reference.y);
    if (!std::isfinite(y)) {
      continue;
    }
    append_line(out, plot.left, y, plot.right, y, "reference");
    append_text(out, plot.right - 4, y - 6, "end", "label reference-label", fmt::format("{} {:.4g}", reference.label, reference.y));
  }
}

void append_marks(std::string& out, const Series& series, const Plot& plot) {
  for (const Point& point : series.points) {
    const double x = plot.at_x(point.x), y = plot.at_y(point.y);
    if (std::isfinite(y)) {
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" class=\"{}\"><title>step {:.0f}: {:.5g}</title></circle>\n", x, y,
                         ink_class(series.ink), point.x, point.y);
    }
  }
}

// A run of points without gaps; a single point would be an invisible line and becomes a mark.
void append_piece(std::string& out, const Series& series, const std::vector<Point>& piece) {
  if (piece.size() == 1 && series.draw != Draw::LineWithPoints) {
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" class=\"{}\"/>\n", piece[0].x, piece[0].y, ink_class(series.ink));
  }
  if (piece.size() < 2) {
    return;
  }
  out += fmt::format("<polyline class=\"{}{}\" points=\"", ink_class(series.ink), series.draw == Draw::FaintLine ? " faint" : "");
  for (const Point& pixel : piece) {
    out += fmt::format("{:.1f},{:.1f} ", pixel.x, pixel.y);
  }
  out.back() = '"';
  out += "/>\n";
}

void append_series(std::string& out, const Series& series, const Plot& plot) {
  std::vector<Point> piece;  // in pixels
  for (const Point& point : thinned(series.points, static_cast<int64_t>((plot.right - plot.left) / 2))) {
    const Point pixel{.x = plot.at_x(point.x), .y = plot.at_y(point.y)};
    if (std::isfinite(pixel.y)) {
      piece.push_back(pixel);
      continue;
    }
    append_piece(out, series, piece);
    piece.clear();
  }
  append_piece(out, series, piece);
  if (series.draw == Draw::LineWithPoints) {
    append_marks(out, series, plot);
  }
}

// Names at the right edge, in the order of the series. Series without a name are left out.
void append_legend(std::string& out, const Chart& chart) {
  constexpr double kSwatch = 24, kGap = 14;
  double x = static_cast<double>(chart.width) - 14 + kGap;
  for (const Series& series : chart.series) {
    x -= series.name.empty() ? 0 : kSwatch + kLetterWidth * static_cast<double>(series.name.size()) + kGap;
  }
  for (const Series& series : chart.series) {
    if (series.name.empty()) {
      continue;
    }
    const std::string css_class = fmt::format("swatch {}{}", ink_class(series.ink), series.draw == Draw::FaintLine ? " faint" : "");
    append_line(out, x, 16, x + kSwatch - 6, 16, css_class.c_str());
    append_text(out, x + kSwatch, 20, "start", "tick", series.name);
    x += kSwatch + kLetterWidth * static_cast<double>(series.name.size()) + kGap;
  }
}

void append_title(std::string& out, const Chart& chart, bool is_log) {
  const std::string unit = chart.unit + (is_log ? (chart.unit.empty() ? "log scale" : ", log scale") : "");
  out += fmt::format("<text x=\"14\" y=\"20\" class=\"title\">{}<tspan class=\"unit\" dx=\"8\">{}</tspan></text>\n", escaped(chart.title),
                     escaped(unit));
}

}  // namespace

std::string to_svg(const Chart& chart, SvgUse use) {
  std::string out = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"{2}\">\n",
      chart.width, chart.height, escaped(chart.title));
  if (use == SvgUse::Standalone) {
    out += fmt::format("<style>{}</style>\n<rect class=\"background\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n", kChartStyle, chart.width,
                       chart.height);
  }
  const std::vector<double> values = finite_values(chart);
  if (values.empty()) {
    append_title(out, chart, false);
    append_text(out, 0.5 * chart.width, 0.5 * chart.height + 10, "middle", "tick", "no values were recorded");
    return out + "</svg>\n";
  }
  const Plot plot = make_plot(chart, make_value_axis(chart, values));
  append_title(out, chart, plot.y.scale == Scale::Log);
  append_legend(out, chart);
  append_axes(out, plot);
  append_references(out, chart, plot);
  for (const Series& series : chart.series) {
    append_series(out, series, plot);
  }
  append_boundaries(out, chart, plot);
  return out + "</svg>\n";
}

}  // namespace longhaul::report
