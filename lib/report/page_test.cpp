// The page and its charts as text: self-contained, escaped, and with a place for everything that was measured.
#include "report/page.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <regex>

#include "report/markup.h"
#include "report/numbers.h"
#include "report/run_charts.h"

namespace longhaul::report {
namespace {

using Catch::Matchers::ContainsSubstring;

RunRecord small_run(int64_t steps) {
  RunRecord run{.directory = "runs/a", .name = "a <b> & \"c\"", .recipe = "run: {name: <b>}"};
  run.stages = {{.name = "8k", .sequence_length = 8192, .first_step = 1, .last_step = steps / 2, .grid = "one rank"},
                {.name = "64k", .sequence_length = 65536, .first_step = steps / 2 + 1, .last_step = steps, .grid = "one rank"}};
  for (int64_t step = 1; step <= steps; ++step) {
    run.steps.push_back({.step = step,
                         .stage = step <= steps / 2 ? "8k" : "64k",
                         .loss = 2 + 3 / static_cast<double>(step),
                         .gradient_norm = 1,
                         .learning_rate = 1e-3,
                         .tokens = 4096 * static_cast<double>(step),
                         .tokens_per_second = 1000,
                         .step_ms = 500,
                         .peak_memory_bytes = 1 << 27});
  }
  run.validations = {{.step = steps, .loss = 2.1, .bits_per_byte = 3.03, .targets = 10, .seconds = 1}};
  run.checkpoints = {{.step = steps, .path = "runs/a/checkpoints/step_1", .bytes = 3 << 20, .seconds = 2}};
  run.warnings = {{.after_step = 1, .message = "disk < 1 GiB"}};
  return run;
}

// Every number in the points of lines and marks.
std::vector<double> coordinates(const std::string& svg) {
  std::vector<double> values;
  static const std::regex kPoints("(points|cx|cy)=\"([^\"]*)\"");
  static const std::regex kNumber("[^, ]+");
  for (std::sregex_iterator at(svg.begin(), svg.end(), kPoints), end; at != end; ++at) {
    const std::string text = (*at)[2];
    for (std::sregex_iterator number(text.begin(), text.end(), kNumber); number != end; ++number) {
      values.push_back(std::stod(number->str()));
    }
  }
  return values;
}

TEST_CASE("the page refers to nothing outside itself and runs no script", "[report]") {
  const std::string page = to_html(small_run(300), {.references = {{"bigram entropy", 2.239}}, .version = "v"});
  for (const char* word : {"<script", "src=", "href=", "@import", "url("}) {
    CAPTURE(word);
    CHECK(page.find(word) == std::string::npos);
  }
  // The one address is the name of SVG's namespace.
  const std::string without_namespace = std::regex_replace(page, std::regex("xmlns=\"http://www.w3.org/2000/svg\""), "");
  CHECK(without_namespace.find("http") == std::string::npos);
}

TEST_CASE("the page holds what was measured, escaped", "[report]") {
  const std::string page = to_html(small_run(300), {.references = {{"bigram entropy", 2.239}}, .version = "v"});
  CHECK_THAT(page, ContainsSubstring("<h1>a &lt;b&gt; &amp; &quot;c&quot;"));
  CHECK(page.find("<b>") == std::string::npos);
  CHECK_THAT(page, ContainsSubstring("1,228,800"));  // tokens
  CHECK_THAT(page, ContainsSubstring("128.0 MiB"));
  CHECK_THAT(page, ContainsSubstring("2.1000"));
  CHECK_THAT(page, ContainsSubstring("3.030"));
  CHECK_THAT(page, ContainsSubstring("runs/a/checkpoints/step_1"));
  CHECK_THAT(page, ContainsSubstring("disk &lt; 1 GiB"));
  CHECK_THAT(page, ContainsSubstring("run: {name: &lt;b&gt;}"));
  CHECK_THAT(page, ContainsSubstring("bigram entropy 2.239"));
  CHECK_THAT(page, ContainsSubstring("stage 64k"));
}

TEST_CASE("no lines and no steps still make a page", "[report]") {
  const std::string page = to_html(RunRecord{.directory = "runs/a", .name = "a"}, {});
  CHECK_THAT(page, ContainsSubstring("no values were recorded"));
  CHECK_THAT(page, ContainsSubstring("</html>"));
  CHECK(page.find("nan") == std::string::npos);
}

TEST_CASE("charts stay inside their picture, with missing values and outliers too", "[report]") {
  for (const int64_t steps : {1, 2, 5, 99, 3000}) {
    RunRecord run = small_run(steps);
    run.steps[0].loss = kMissing;
    run.steps.back().gradient_norm = 1e6;
    std::vector<Chart> charts = detail_charts(run);
    charts.push_back(loss_chart(run, {{"reference", 9}}));
    for (const Chart& chart : charts) {
      const std::string svg = to_svg(chart, SvgUse::Standalone);
      CAPTURE(steps, chart.title);
      CHECK(svg.find("nan") == std::string::npos);
      CHECK(svg.find("inf") == std::string::npos);
      for (const double value : coordinates(svg)) {
        REQUIRE(value >= 0);
        REQUIRE(value <= chart.width);
      }
    }
  }
}

TEST_CASE("a long run makes a small picture", "[report]") {
  CHECK(to_svg(loss_chart(small_run(20000), {}), SvgUse::InPage).size() < 100'000);
}

TEST_CASE("a line breaks where a value is missing", "[report]") {
  Chart chart{.title = "t", .unit = "", .series = {{.name = "", .points = {{1, 1}, {2, 2}, {3, kMissing}, {4, 1}, {5, 2}}}}, .first_step = 1, .last_step = 5};
  const std::string svg = to_svg(chart, SvgUse::InPage);
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  CHECK(lines == 2);
}

TEST_CASE("numbers read as people write them", "[report]") {
  CHECK(with_separators(1077740) == "1,077,740");
  CHECK(with_separators(-999) == "-999");
  CHECK(short_count(9313) == "9,313");
  CHECK(short_count(1077740) == "1.078M");
  CHECK(short_count(999'999'900) == "1.000B");
  CHECK(short_count(kMissing) == "n/a");
  CHECK(byte_size(140939264) == "134.4 MiB");
  CHECK(duration(0.0123) == "12 ms");
  CHECK(duration(12.34) == "12.3 s");
  CHECK(duration(59.97) == "1m 00s");
  CHECK(duration(3725) == "1h 02m");
  CHECK(fixed(kMissing, 2) == "n/a");
  CHECK(escaped("a\x01<") == "a &lt;");
}

}  // namespace
}  // namespace longhaul::report
