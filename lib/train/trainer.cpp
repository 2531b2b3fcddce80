// See trainer.h.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/cast.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "comm/agreement.h"
#include "config/write.h"
#include "device/blas.h"
#include "device/gpus.h"
#include "model/flops.h"
#include "train/run_directory.h"
#include "train/step_line.h"
#include "train/versions.h"

namespace longhaul {
namespace {

constexpr int64_t kByteVocabulary = 257;  // of the byte tokenizer: one token a byte, and the end of a document

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Memory taken on the GPU, which holds all that a rank allocates until its stage ends; on the CPU the largest resident memory of
// this process so far.
int64_t peak_memory_bytes(Device device) {
  if (device.kind == DeviceKind::Cuda) {
    return used_bytes(device);
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stoll(line.substr(6)) * 1024;
    }
  }
  return 0;
}

WatchdogOptions watchdog_options(const Recipe& recipe, MpiSession& mpi) {
  return {.limit = std::chrono::seconds(recipe.runtime.watchdog_seconds), .rank = mpi.world().rank(), .host_name = mpi.host_name()};
}

}  // namespace

Trainer::Trainer(MpiSession& mpi, const Recipe& recipe, const RunPlan& plan, Device device, TrainerOptions options)
    : mpi_(mpi),
      world_(mpi.world()),
      recipe_(recipe),
      plan_(plan),
      device_(device),
      peak_flops_(device.kind == DeviceKind::Cuda ? peak_bf16_flops(memory_of(device)) : 0),
      options_(std::move(options)),
      directory_(recipe.run.directory()),
      recipe_text_(config::dump(recipe)),
      log_(world_.rank() == 0 ? RunLog::Role::Writer : RunLog::Role::Silent),
      signals_(recipe.runtime.signals),
      watchdog_(watchdog_options(recipe, mpi), mpi.journal(),
                {.report = Watchdog::report_to_stderr, .end_job = [&mpi] { mpi.abort(kWatchdogExitCode); }}),
      saver_(world_, save_options(), recipe.checkpoint.staging_mib << 20) {}

int Trainer::run() {
  started_ = now_seconds();
  prepare_directory();
  Reason reason = Reason::Finished;
  try {
    reason = train_stages();
  } catch (const Error& error) {
    // Where all ranks have the same error, what was good when its save began is not lost.
    if (agreed_failure(error) != nullptr && saver_.is_pending()) {
      finish_save();
    }
    throw;
  }
  const char* why = reason == Reason::Preempted ? "preempted" : reason == Reason::StopStep ? "stop_at_step" : "finished";
  log_.record({{"type", "end"}, {"reason", why}, {"step", progress_.step}, {"tokens", progress_.tokens}, {"seconds", now_seconds() - started_}});
  log_.say(fmt::format("{} at step {} after {} tokens; the checkpoint is in {}", why, progress_.step, progress_.tokens,
                       (directory_ / "checkpoints").string()));
  log_data_counters();
  watchdog_.beat("end");
  world_.barrier();
  return reason == Reason::Preempted ? kPreemptedExitCode : 0;
}

Trainer::Reason Trainer::train_stages() {
  std::optional<std::filesystem::path> checkpoint = find_start();
  log_header();
  Reason reason = Reason::Finished;
  while (progress_.step < plan_.total_steps && reason == Reason::Finished) {
    enter_stage(plan_.stage_of_step(progress_.step + 1), checkpoint);
    reason = train_stage();
    // A stage that is through is closed in the same way whether the run goes on or not.
    if (progress_.step == stage_->plan().last_step()) {
      validate_now();
      checkpoint = save(CheckpointRole::StageFinal);
    } else if (saved_step_ != progress_.step) {
      checkpoint = save(CheckpointRole::Periodic);
    }
    finish_save();
  }
  return progress_.step == plan_.total_steps ? Reason::Finished : reason;
}

void Trainer::prepare_directory() {
  run_together(world_, "preparing the run directory", [&] {
    if (world_.rank() != 0) {
      return;
    }
    const std::optional<std::string> existing = existing_run(directory_);
    const bool starts_over = options_.start.kind == StartFrom::Kind::Fresh || options_.start.kind == StartFrom::Kind::Weights;
    if (existing && starts_over) {
      if (options_.existing == TrainerOptions::Existing::Refuse) {
        throw RecipeError("{} already holds {}; use --resume to go on, --overwrite to start afresh, or another --run-dir", directory_.string(),
                          *existing);
      }
      clear_run(directory_);
    }
    write_recipe(directory_, recipe_text_);
    log_.open(directory_);
  });
}

std::optional<std::filesystem::path> Trainer::find_start() {
  if (options_.start.kind == StartFrom::Kind::Fresh || options_.start.kind == StartFrom::Kind::Weights) {
    return std::nullopt;
  }
  // One rank looks, so that all resume from the same checkpoint.
  std::string found;
  run_together(world_, "looking for a checkpoint", [&] {
    if (world_.rank() != 0) {
      return;
    }
    const RequiredDocuments required{.shared = {kDataDocument, kProgressDocument}, .of_every_rank = {}};
    if (options_.start.kind == StartFrom::Kind::Path) {
      const std::string problem = incomplete_reason(options_.start.path, required);
      if (!problem.empty()) {
        throw CheckpointError("{} cannot be resumed from: {}", options_.start.path.string(), problem);
      }
      found = options_.start.path.string();
    } else if (const auto newest = find_latest(directory_, [&](const std::string& text) { log_.warn(text); }, required)) {
      found = newest->path.string();
    }
  });
  world_.broadcast_string(found, 0);
  if (found.empty()) {
    log_.say("no checkpoint to resume from; starting from step 0");
    return std::nullopt;
  }
  CheckpointInfo info;
  run_agreed(world_, [&] {
    info = CheckpointReader(found).info();
    if (info.step > plan_.total_steps) {
      throw RecipeError("the checkpoint {} is of step {}, but the recipe ends at step {}; give the stages more steps", found, info.step,
                        plan_.total_steps);
    }
  });
  progress_ = {.step = info.step, .tokens = info.tokens};
  if (std::filesystem::weakly_canonical(found).parent_path() == std::filesystem::weakly_canonical(checkpoints_directory(directory_))) {
    saved_step_ = info.step;  // otherwise this run has no checkpoint of its own yet
  }
  log_.record({{"type", "resume"}, {"step", info.step}, {"checkpoint", found}});
  log_.say(fmt::format("resuming after step {} from {}", info.step, found));
  return found;
}

void Trainer::enter_stage(const StagePlan& stage, const std::optional<std::filesystem::path>& checkpoint) {
  watchdog_.beat("stage " + stage.name);
  // The old stage's memory goes first; its state is in the checkpoint.
  stage_.reset();
  run_together(world_, "opening the data", [&] { check_data(recipe_, stage); });
  stage_ = std::make_unique<StageState>(recipe_, stage, world_, &mpi_.journal(), device_);
  if (checkpoint) {
    const bool within = progress_.step > stage.first_step;
    progress_ = stage_->load(world_, *checkpoint, within ? Continuation::Resume : Continuation::NewStage);
  } else if (options_.start.kind == StartFrom::Kind::Weights) {
    stage_->load_weights(world_, options_.start.path);
  } else {
    stage_->initialise(narrow<uint64_t>(recipe_.run.seed));
  }
  smooth_step_seconds_ = 0;
  log_.record({{"type", "stage"}, {"stage", stage.name}, {"sequence_length", stage.sequence_length}, {"first_step", stage.first_step + 1},
               {"last_step", stage.last_step()}, {"grid", stage.grid.describe()}});
  log_.say(fmt::format("stage {}: steps {}-{}, sequences of {}, {} tokens a step", stage.name, stage.first_step + 1, stage.last_step(),
                       stage.sequence_length, stage.tokens_per_step()));
}

Trainer::Reason Trainer::train_stage() {
  const StagePlan& stage = stage_->plan();
  while (progress_.step < stage.last_step()) {
    if (options_.stop_at_step && progress_.step >= *options_.stop_at_step) {
      return Reason::StopStep;  // resumed there: what follows is a save in this run's layout at most
    }
    one_step();
    const int64_t step = progress_.step;
    const bool is_last = step == stage.last_step();
    if (recipe_.validation.every_steps > 0 && step % recipe_.validation.every_steps == 0 && !is_last) {
      validate_now();
    }
    if (recipe_.checkpoint.every_steps > 0 && step % recipe_.checkpoint.every_steps == 0 && !is_last) {
      if (recipe_.checkpoint.async) {
        save_in_background();
      } else {
        (void)save(CheckpointRole::Periodic);
      }
    }
    const Reason reason = reason_to_stop();
    if (reason != Reason::None) {
      return reason;
    }
  }
  return Reason::Finished;
}

void Trainer::one_step() {
  const double start = now_seconds();
  const StepResult result =
      train_step(*stage_, world_, watchdog_, progress_.step + 1, plan_.total_steps, [&] { saver_.release_tensors(); });
  ++progress_.step;
  progress_.tokens += stage_->plan().tokens_per_step();
  log_step(result, now_seconds() - start);
  if (const std::optional<FinishedSave> finished = saver_.poll()) {
    report(*finished, SaveMode::Background);
  }
}

Trainer::Reason Trainer::reason_to_stop() {
  const double minutes = (now_seconds() - started_) / 60;
  const bool wants = signals_.arrived() != 0 || (recipe_.runtime.max_minutes > 0 && minutes >= recipe_.runtime.max_minutes);
  if (world_.any(wants)) {
    return Reason::Preempted;
  }
  return options_.stop_at_step && progress_.step >= *options_.stop_at_step ? Reason::StopStep : Reason::None;
}

void Trainer::validate_now() {
  if (!stage_->validation) {
    return;
  }
  const double start = now_seconds();
  const ValidationResult result = validate(*stage_, watchdog_);
  nlohmann::json event = {{"type", "validation"},       {"step", progress_.step},        {"stage", stage_->plan().name},
                          {"tokens", progress_.tokens}, {"loss", result.loss},           {"targets", result.targets},
                          {"bits_per_byte", nullptr},   {"seconds", now_seconds() - start}};
  std::string bits = "";
  if (recipe_.model.vocab_size == kByteVocabulary) {
    event["bits_per_byte"] = result.loss / std::numbers::ln2;
    bits = fmt::format(", {:.4f} bits per byte", result.loss / std::numbers::ln2);
  }
  log_.record(event);
  log_.say(fmt::format("validation at step {}: loss {:.4f} nats{} on {} targets", progress_.step, result.loss, bits, result.targets));
}

SaveOptions Trainer::save_options() {
  return {.keep = recipe_.checkpoint.keep,
          .major_every = recipe_.checkpoint.major_every,
          .compression = recipe_.checkpoint.compression,
          .copy = {},
          .warn = [this](const std::string& text) { log_.warn(text); },
          .fault = options_.fault};
}

std::filesystem::path Trainer::save(CheckpointRole role) {
  finish_save();
  watchdog_.beat("checkpoint");
  const double start = now_seconds();
  const SavedCheckpoint saved = save_checkpoint(world_, directory_, stage_->content(progress_, role, recipe_text_), save_options());
  saved_step_ = progress_.step;
  const double seconds = now_seconds() - start;
  report({.saved = saved, .step = progress_.step, .seconds = seconds, .stall_seconds = seconds}, SaveMode::Waited);
  return saved.path;
}

void Trainer::save_in_background() {
  finish_save();
  watchdog_.beat("checkpoint");
  saver_.begin(directory_, stage_->content(progress_, CheckpointRole::Periodic, recipe_text_));
  saved_step_ = progress_.step;
}

void Trainer::finish_save() {
  if (const std::optional<FinishedSave> finished = saver_.finish([&] { watchdog_.beat("checkpoint"); })) {
    report(*finished, SaveMode::Background);
  }
}

void Trainer::report(const FinishedSave& save, SaveMode mode) {
  const double rate = save.seconds > 0 ? static_cast<double>(save.saved.bytes) / save.seconds : 0;
  log_.record({{"type", "checkpoint"},
               {"step", save.step},
               {"path", save.saved.path.string()},
               {"bytes", save.saved.bytes},
               {"seconds", save.seconds},
               {"stall_seconds", save.stall_seconds},
               {"bytes_per_second", rate},
               {"async", mode == SaveMode::Background}});
  log_.say(fmt::format("checkpoint {} ({:.1f} MiB in {:.2f} s, of which training waited {:.2f} s)", save.saved.path.string(),
                       static_cast<double>(save.saved.bytes) / (1 << 20), save.seconds, save.stall_seconds));
}

void Trainer::log_header() {
  log_.record({{"type", "header"},
               {"name", recipe_.run.name},
               {"world_size", world_.size()},
               {"backend", recipe_.runtime.backend == Backend::Cpu ? "cpu" : "cuda"},
               {"parameters", total_parameters(recipe_.model)},
               {"active_parameters", active_parameters(recipe_.model)},
               {"total_steps", plan_.total_steps},
               {"total_tokens", plan_.total_tokens},
               {"causal", true},
               {"versions", nlohmann::json::parse(versions_json())},
               {"build", build_hash()},
               {"flops", "3 x (2 x active parameters + KDA core, linear + MLA core, causal) a token"},
               {"recipe", recipe_text_}});
  log_.say(plan_table(recipe_, plan_));
}

// Nothing is lost in silence: what became of every token that was asked for since the run's start.
void Trainer::log_data_counters() {
  if (!stage_) {
    return;  // resumed at its end
  }
  const DataCounters& data = stage_->loader.state().counters;
  log_.say(fmt::format("data: {} tokens used, {} of them with a target; {} dropped, {} padded; {} documents ended", data.used, data.targets,
                       data.dropped, data.padded, data.documents));
}

void Trainer::log_step(const StepResult& result, double seconds) {
  const StagePlan& stage = stage_->plan();
  smooth_step_seconds_ = smooth_step_seconds_ == 0 ? seconds : 0.9 * smooth_step_seconds_ + 0.1 * seconds;
  std::vector<int64_t> peaks = world_.all_gather_value(peak_memory_bytes(device_));
  const StepLine line{.step = progress_.step,
                      .total_steps = plan_.total_steps,
                      .stage = stage.name,
                      .sequence_length = stage.sequence_length,
                      .loss = result.loss,
                      .gradient_norm = result.gradient_norm,
                      .learning_rate = result.learning_rate,
                      .total_tokens = progress_.tokens,
                      .step_tokens = stage.tokens_per_step(),
                      .seconds = seconds,
                      .seconds_left = smooth_step_seconds_ * static_cast<double>(plan_.total_steps - progress_.step),
                      .peak_memory_bytes = *std::max_element(peaks.begin(), peaks.end()),
                      .flops = training_flops_per_token(recipe_.model, static_cast<double>(stage.sequence_length)) *
                               static_cast<double>(stage.tokens_per_step()),
                      .ranks = world_.size(),
                      .peak_flops = peak_flops_,
                      .max_violation = result.max_violation};
  log_.record(to_json(line));
  log_.progress(to_text(line), {.done = line.step, .total = line.total_steps, .note = to_note(line)});
}

}  // namespace longhaul
