// See page.h. One function a section, in the order of the page.
#include "report/page.h"

#include <fmt/format.h>

#include <cmath>

#include "report/markup.h"
#include "report/numbers.h"
#include "report/run_charts.h"
#include "report/style.h"
#include "report/summary.h"

namespace longhaul::report {
namespace {

// Longer tables are folded away.
constexpr size_t kOpenRows = 12;

std::string head(const RunRecord& run, const Summary& summary) {
  const Status status = status_of(run);
  std::string about;
  const auto add = [&](const std::string& text) { about += (about.empty() ? "" : " · ") + text; };
  if (!run.backend.empty()) {
    add(run.backend);
  }
  if (std::isfinite(run.world_size)) {
    add(fmt::format("{:.0f} rank{}", run.world_size, run.world_size == 1 ? "" : "s"));
  }
  add(std::isfinite(run.total_steps) ? fmt::format("step {} of {:.0f}", summary.last_step, run.total_steps) : fmt::format("step {}", summary.last_step));
  add(run.directory.string());
  return fmt::format("<h1>{}<span class=\"badge {}\">{}</span></h1>\n<p class=\"quiet\">{}</p>\n", escaped(run.name),
                     status.is_finished ? "good" : "fair", escaped(status.text), escaped(about));
}

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><div class=\"name\">{}</div><div class=\"value\">{}</div><div class=\"note\">{}</div></div>\n",
                     escaped(name), escaped(value), escaped(note));
}

std::string tiles(const RunRecord& run, const Summary& s) {
  const bool has_validation = std::isfinite(s.validation_loss);
  const std::string validated = has_validation ? fmt::format("nats, at step {}", s.validation_step) : std::string("not measured");
  return "<div class=\"tiles\">\n" + tile("Validation loss", fixed(s.validation_loss, 4), validated) +
         (std::isfinite(s.bits_per_byte) ? tile("Bits per byte", fixed(s.bits_per_byte, 3), "validation")
                                         : tile("Training loss", fixed(s.train_loss, 4), s.train_loss_steps == 1 ? std::string("nats, last step") : fmt::format("nats, last {} steps", s.train_loss_steps))) +
         tile("Tokens", short_count(s.tokens), std::isfinite(run.total_tokens) ? "of " + short_count(run.total_tokens) : "trained on") +
         tile("Throughput", short_count(s.tokens_per_second), "tokens a second") +
         tile("Parameters", short_count(run.parameters), short_count(run.active_parameters) + " active") +
         tile("Peak memory", byte_size(s.peak_memory_bytes), "largest of all ranks") + "</div>\n";
}

std::string loss_section(const RunRecord& run, const PageOptions& options) {
  return "<div class=\"card wide\">" + to_svg(loss_chart(run, options.references), SvgUse::InPage) + "</div>\n";
}

std::string detail_section(const RunRecord& run) {
  std::string out = "<div class=\"charts\">\n";
  for (const Chart& chart : detail_charts(run)) {
    out += "<div class=\"card\">" + to_svg(chart, SvgUse::InPage) + "</div>\n";
  }
  return out + "</div>\n";
}

// Names and values in as many columns as fit.
class Facts {
 public:
  // Nothing for a value that is missing: a row that says n/a tells nobody anything.
  void add(const std::string& name, double value, const std::string& text) {
    if (std::isfinite(value)) {
      rows_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(text));
    }
  }
  [[nodiscard]] std::string html() const { return "<dl class=\"facts\">\n" + rows_ + "</dl>\n"; }

 private:
  std::string rows_;
};

std::string summary_section(const RunRecord& run, const Summary& s) {
  Facts facts;
  facts.add("Parameters", run.parameters, with_separators(run.parameters));
  facts.add("Active parameters, without the embedding", run.active_parameters, with_separators(run.active_parameters));
  facts.add("Tokens trained on", s.tokens, with_separators(s.tokens));
  facts.add("Stages entered", static_cast<double>(run.stages.size()), std::to_string(run.stages.size()));
  facts.add(s.train_loss_steps == 1 ? "Training loss, last step" : fmt::format("Training loss, mean of the last {} steps", s.train_loss_steps),
            s.train_loss, fixed(s.train_loss, 4));
  facts.add(fmt::format("Validation loss, step {}", s.validation_step), s.validation_loss, fixed(s.validation_loss, 4));
  facts.add("Bits per byte, validation", s.bits_per_byte, fixed(s.bits_per_byte, 4));
  facts.add(fmt::format("Best validation loss, step {}", s.best_validation_step), s.best_validation_loss, fixed(s.best_validation_loss, 4));
  facts.add("Tokens a second, median", s.tokens_per_second, with_separators(s.tokens_per_second));
  facts.add("Step time, median", s.step_seconds, duration(s.step_seconds));
  const bool is_fast = s.tflops_per_rank >= 0.5;
  facts.add(is_fast ? "TFLOP/s a rank, median" : "GFLOP/s a rank, median", s.tflops_per_rank, fixed(s.tflops_per_rank * (is_fast ? 1 : 1e3), 2));
  facts.add("Model FLOPs utilisation, median", s.mfu, fixed(s.mfu * 100, 1) + " %");
  facts.add("Peak memory, largest of all ranks", s.peak_memory_bytes, byte_size(s.peak_memory_bytes));
  facts.add("Time in training steps", s.training_seconds, duration(s.training_seconds));
  facts.add("Time in saving checkpoints", s.checkpoint_seconds, duration(s.checkpoint_seconds));
  return "<h2>Summary</h2>\n" + facts.html();
}

// A heading and a table, folded when it is long; nothing without rows.
std::string table_section(const std::string& title, const Table& table) {
  if (table.rows.empty()) {
    return "";
  }
  const std::string heading = fmt::format("<h2>{}</h2>\n", escaped(title));
  if (table.rows.size() <= kOpenRows) {
    return heading + to_html(table);
  }
  return heading + fmt::format("<details><summary>{} rows</summary>\n", table.rows.size()) + to_html(table) + "</details>\n";
}

std::string stages_section(const RunRecord& run) {
  Table table{.head = {"Stage", "Sequence length", "Steps", "Layout"}, .is_numeric = {false, true, true, false}, .rows = {}};
  for (const StageRecord& stage : run.stages) {
    table.rows.push_back({stage.name, with_separators(static_cast<double>(stage.sequence_length)),
                          fmt::format("{}–{}", stage.first_step, stage.last_step), stage.grid});
  }
  return table_section("Stages", table);
}

std::string validations_section(const RunRecord& run) {
  Table table{.head = {"Step", "Stage", "Loss", "Bits per byte", "Targets", "Time"}, .is_numeric = {true, false, true, true, true, true}, .rows = {}};
  for (const ValidationRecord& v : run.validations) {
    table.rows.push_back({std::to_string(v.step), v.stage, fixed(v.loss, 4), fixed(v.bits_per_byte, 4), with_separators(v.targets), duration(v.seconds)});
  }
  return table_section("Validations", table);
}

std::string checkpoints_section(const RunRecord& run) {
  Table table{.head = {"Step", "Size", "Time", "MiB/s", "Path"}, .is_numeric = {true, true, true, true, false}, .rows = {}};
  for (const CheckpointRecord& c : run.checkpoints) {
    table.rows.push_back({std::to_string(c.step), byte_size(c.bytes), duration(c.seconds), fixed(c.bytes / c.seconds / (1 << 20), 0), c.path});
  }
  return table_section("Checkpoints", table);
}

std::string events_section(const RunRecord& run) {
  Table resumes{.head = {"After step", "Checkpoint"}, .is_numeric = {true, false}, .rows = {}};
  for (const ResumeRecord& resume : run.resumes) {
    resumes.rows.push_back({std::to_string(resume.step), resume.checkpoint});
  }
  Table warnings{.head = {"After step", "Message"}, .is_numeric = {true, false}, .rows = {}};
  for (const WarningRecord& warning : run.warnings) {
    warnings.rows.push_back({std::to_string(warning.after_step), warning.message});
  }
  return table_section("Resumes", resumes) + table_section("Warnings", warnings);
}

std::string recipe_section(const RunRecord& run) {
  if (run.recipe.empty()) {
    return "";
  }
  return fmt::format("<h2>Recipe</h2>\n<details><summary>recipe.yaml, as resolved</summary>\n<pre>{}</pre></details>\n", escaped(run.recipe));
}

std::string foot(const RunRecord& run, const PageOptions& options) {
  std::string out;
  if (run.skipped_lines > 0) {
    out += fmt::format("<p class=\"note\">{} line{} of metrics.jsonl could not be read and {} skipped, as a run that is killed while writing leaves.</p>\n",
                       run.skipped_lines, run.skipped_lines == 1 ? "" : "s", run.skipped_lines == 1 ? "was" : "were");
  }
  return out + fmt::format("<p class=\"note\">{}</p>\n", escaped(options.version));
}

}  // namespace

std::string to_html(const RunRecord& run, const PageOptions& options) {
  const Summary summary = summarise(run);
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} – training run</title>\n<style>{}{}</style>\n"
             "</head>\n<body>\n<main>\n",
             escaped(run.name), kChartStyle, kPageStyle) +
         head(run, summary) + tiles(run, summary) + loss_section(run, options) + detail_section(run) + summary_section(run, summary) +
         stages_section(run) + validations_section(run) + checkpoints_section(run) + events_section(run) + recipe_section(run) +
         foot(run, options) + "</main>\n</body>\n</html>\n";
}

}  // namespace longhaul::report
