// See stage_state.h.
#include "train/stage_state.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/cast.h"
#include "train/batch.h"
#include "train/placement.h"
#include "train/versions.h"

namespace longhaul {
namespace {

DataOptions resolved(const Recipe& recipe, const StagePlan& plan) {
  DataOptions data = plan.data;
  data.seed = data.seed.value_or(recipe.run.seed);
  return data;
}

TokenFileOptions file_options(const Recipe& recipe, const DataOptions& data) {
  return {.vocab_size = recipe.model.vocab_size, .document_token = data.document_token};
}

DataLoader open_loader(const Recipe& recipe, const StagePlan& plan) {
  const DataOptions data = resolved(recipe, plan);
  return DataLoader(open_sources(data.train, file_options(recipe, data)),
                    {.sequence_length = plan.sequence_length, .seed = narrow<uint64_t>(*data.seed), .shuffle = data.shuffle});
}

std::optional<ValidationReader> open_validation(const Recipe& recipe, const StagePlan& plan) {
  const DataOptions data = resolved(recipe, plan);
  if (data.validation.empty()) {
    return std::nullopt;
  }
  return ValidationReader(open_sources(data.validation, file_options(recipe, data)), plan.sequence_length, recipe.validation.tokens);
}

std::vector<BalancedRouter> balanced_routers(const StageModel& model, const BalanceOptions& options) {
  std::vector<BalancedRouter> routers;
  for (const DecoderLayer& layer : model.layers()) {
    if (!layer.is_dense) {
      routers.push_back({.name = fmt::format("model.layers.{}.block_sparse_moe.gate", layer.layer),
                         .experts = layer.moe.options.num_experts,
                         .top_k = layer.moe.options.top_k,
                         .method = options.method});
    }
  }
  return routers;
}

std::unique_ptr<CudaContext> make_cuda(Device device) {
  return device.kind == DeviceKind::Cuda ? std::make_unique<CudaContext>(device) : nullptr;
}

ExecContext make_exec(Device device, const StageMemory& memory, CudaContext* cuda) {
  return {device, ExecContext::Mode::Execute, Arena(device, "scratch", memory.scratch_bytes, Arena::Growth::Chunked), cuda};
}

Arena make_batch_memory(Device device, const StagePlan& plan) {
  const int64_t bytes =
      device.kind == DeviceKind::Cuda
          ? Batches::memory_bytes(plan.micro_batches, plan.micro_batch_tokens(), planned_documents(plan.micro_batch_tokens()))
          : 0;
  return {device, "batches", bytes, Arena::Growth::Chunked};
}

StageMemory memory_of(const StageModel& model, Device device, const StagePlan& plan) {
  return plan_stage_memory(model, device, plan.micro_batch_tokens(), planned_documents(plan.micro_batch_tokens()));
}

int64_t slots_of(const StagePlan& plan, int pipeline_rank) {
  return max_in_flight(one_forward_one_backward(pipeline_rank, plan.grid.pipeline(), plan.micro_batches));
}

// The block of a parameter-shaped tensor that this rank holds.
Piece piece_of(std::string name, const ParameterSpec& spec, const TensorView& data) {
  Piece piece = whole_piece(std::move(name), data);
  piece.global_shape = spec.global_shape();
  if (spec.is_expert()) {
    piece.offset[0] = spec.first_expert;
  }
  return piece;
}

}  // namespace

StageState::StageState(const Recipe& recipe, const StagePlan& plan, HostComm& world, CommJournal* journal, Device device)
    : cuda(make_cuda(device)),
      groups(Groups::create(world, plan.grid, groups_options(recipe, cuda.get(), journal))),
      model(recipe.model, plan.cut[static_cast<size_t>(groups.pipeline.rank)], compute_type(recipe), groups.expert),
      exec(make_exec(device, memory_of(model, device, plan), cuda.get())),
      parameters(model, exec),
      optimizer(parameters, exec),
      balance(plan.balance, accurate_type(model.dtype()), balanced_routers(model, plan.balance), device),
      pipeline(model, parameters, groups.pipeline, device, slots_of(plan, groups.pipeline.rank), memory_of(model, device, plan).keep_bytes),
      batch_memory(make_batch_memory(device, plan)),
      sums(DType::F64, {2}, device),
      loader(open_loader(recipe, plan)),
      validation(open_validation(recipe, plan)),
      plan_(plan) {}

void check_data(const Recipe& recipe, const StagePlan& plan) {
  (void)open_loader(recipe, plan);
  (void)open_validation(recipe, plan);
}

void StageState::initialise(uint64_t seed) { parameters.initialise(exec, seed); }

BalanceCollectives StageState::balance_collectives() {
  return {.all_reduce_sum = [this](TensorView values) { groups.loss.host_data.all_reduce_sum(values); },
          .all_gather =
              [this](std::span<const double> mine) {
                std::vector<double> all;
                for (const HostComm::Bytes& part : groups.loss.host.all_gather_bytes(std::as_bytes(mine))) {
                  const auto count = part.size() / sizeof(double);
                  const size_t at = all.size();
                  all.resize(at + count);
                  std::memcpy(all.data() + at, part.data(), part.size());
                }
                return all;
              }};
}

std::vector<RouterState> StageState::router_states(StageModel::Purpose purpose) const {
  std::vector<RouterState> states;
  int64_t next = 0;
  for (const DecoderLayer& layer : model.layers()) {
    RouterState state;
    if (!layer.is_dense) {
      const RouterBalance router = balance.router(next++);
      state.bias = router.bias;
      if (purpose == StageModel::Purpose::Train) {
        state.counts = router.counts;
        state.load = router.load;
      }
      state.low = router.low;
      state.high = router.high;
    }
    states.push_back(state);
  }
  return states;
}

bool StageState::owns(const ParameterSpec& spec) const {
  return spec.is_expert() ? groups.expert_data.is_first() : groups.loss.is_first();
}

std::vector<Piece> StageState::pieces_of_model() const {
  std::vector<Piece> pieces;
  for (const Parameter& parameter : parameters.all()) {
    pieces.push_back(piece_of("model/" + parameter.name, parameter.spec, parameter.value));
  }
  return pieces;
}

std::vector<Piece> StageState::pieces_of_optimizer() const {
  std::vector<Piece> pieces;
  optimizer.for_each_state([&](const std::string& name, const TensorView& view, const Parameter& parameter) {
    pieces.push_back(piece_of("optimizer/" + name, parameter.spec, view));
  });
  return pieces;
}

std::vector<Piece> StageState::pieces_of_balance() {
  std::vector<Piece> pieces;
  balance.for_each([&](const std::string& name, const TensorView& view) {
    const bool is_bias = name.ends_with("e_score_correction_bias");
    pieces.push_back(whole_piece((is_bias ? "model/" : "balance/") + name, view));
  });
  return pieces;
}

CheckpointContent StageState::content(const Progress& progress, CheckpointRole role, const std::string& recipe_text) {
  balance.pool(balance_collectives());
  CheckpointContent result;
  result.info = {.step = progress.step, .stage = plan_.name, .tokens = progress.tokens, .role = role, .recipe = recipe_text,
                  .versions = versions_json(), .layout = nlohmann::json{{"grid", plan_.grid.describe()}}.dump()};
  const auto keep_owned = [&](std::vector<Piece> pieces, Stability stability, auto&& owned) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (owned(i)) {
        pieces[i].stability = stability;
        result.pieces.push_back(std::move(pieces[i]));
      }
    }
  };
  keep_owned(pieces_of_model(), Stability::UntilRelease, [&](size_t i) { return owns(parameters.all()[i].spec); });
  keep_owned(pieces_of_optimizer(), Stability::UntilRelease, [&](size_t i) { return owns(parameters.all()[i / 2].spec); });  // m and v of each
  keep_owned(pieces_of_balance(), Stability::None, [&](size_t) { return groups.loss.is_first(); });
  result.documents[kDataDocument] = to_json(loader.state()).dump();
  result.documents[kProgressDocument] = nlohmann::json{{"step", progress.step}, {"tokens", progress.tokens}, {"stage", plan_.index}}.dump();
  return result;
}

Progress StageState::load(HostComm& world, const std::filesystem::path& checkpoint, Continuation continuation) {
  std::optional<CheckpointReader> reader;
  run_together(world, "opening the checkpoint", [&] { reader.emplace(checkpoint); });
  verify_checkpoint(world, *reader);
  LoadRequest request;
  for (std::vector<Piece> pieces : {pieces_of_model(), pieces_of_optimizer(), pieces_of_balance()}) {
    std::move(pieces.begin(), pieces.end(), std::back_inserter(request.pieces));
  }
  load_tensors(world, *reader, request);
  parameters.publish(exec);
  balance.publish();
  Progress progress;
  run_together(world, "restoring the data position", [&] {
    loader.restore(data_state_from_json(nlohmann::json::parse(reader->document(kDataDocument))), continuation);
    progress = {.step = reader->info().step, .tokens = reader->info().tokens};
  });
  return progress;
}

void StageState::load_weights(HostComm& world, const std::filesystem::path& checkpoint) {
  std::optional<CheckpointReader> reader;
  run_together(world, "opening the checkpoint", [&] { reader.emplace(checkpoint); });
  verify_checkpoint(world, *reader);
  LoadRequest request{.pieces = pieces_of_model(), .prefixes = {"model/"}};
  for (Piece& piece : pieces_of_balance()) {
    if (piece.name.starts_with("model/")) {
      request.pieces.push_back(std::move(piece));
    }
  }
  load_tensors(world, *reader, request);
  parameters.publish(exec);
  balance.restart();
}

}  // namespace longhaul
