// The Hopper version against the CPU in double on the same bf16 inputs, in both directions, within the bounds that the
// published kernels' own tests have; then what must hold to the last bit: two runs, packed documents, and later tokens.
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "kernels/gpu_test.h"
#include "kernels/kda/cuda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"
#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

ExecContext hopper() {
  if (find_gpus().empty() || !cuda::has_kda_hopper(kGpu)) {
    SKIP("no Hopper GPU");
  }
  return ExecContext::cuda(kGpu);
}

Tensor to_bf16(const TensorView& from) {
  const std::vector<double> values = to_doubles(from);
  Tensor to(DType::BF16, from.shape());
  for (size_t i = 0; i < values.size(); ++i) {
    to.values<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
  }
  return to;
}
Tensor to_floats(const TensorView& from) { return converted(from, DType::F32); }

struct Case {
  KdaProblem inputs;  // f64, holding values of the types that the GPU has
  Tensor d_o, dfinal_state;

  Case() = default;
  explicit Case(const KdaSizes& sizes, double gradient = 1, KdaTiles tiles = KdaTiles::Dense) : inputs(sizes, tiles) {
    d_o = random_tensor(DType::F64, inputs.v.view().shape(), "kda.d_o", gradient);
    dfinal_state = random_tensor(DType::F64, inputs.initial_state.view().shape(), "kda.dfinal_state", gradient);
    round();
  }
  void round() {
    for (Tensor* tensor : {&inputs.q, &inputs.k, &inputs.v, &d_o}) {
      *tensor = converted(to_bf16(*tensor), DType::F64);
    }
    for (Tensor* tensor : {&inputs.g, &inputs.beta, &inputs.initial_state, &dfinal_state}) {
      *tensor = converted(to_floats(*tensor), DType::F64);
    }
  }
};

struct Outputs {
  Tensor o, final_state, dq, dk, dv, dg, dbeta, dinitial_state;
};
constexpr std::pair<const char*, Tensor Outputs::*> kOutputs[] = {
    {"o", &Outputs::o},   {"final_state", &Outputs::final_state}, {"dq", &Outputs::dq},       {"dk", &Outputs::dk},
    {"dv", &Outputs::dv}, {"dg", &Outputs::dg},                   {"dbeta", &Outputs::dbeta}, {"dinitial_state", &Outputs::dinitial_state}};

// Relative RMS.
double bound_of(std::string_view name) {
  if (name == "o" || name == "final_state") {
    return 0.005;
  }
  return name == "dg" || name == "dbeta" ? 0.02 : 0.008;
}

Outputs run_on_gpu(const Case& c, ExecContext& ctx) {
  const KdaProblem& in = c.inputs;
  const auto halves = [](const Tensor& x) { return copy_to(to_bf16(x), kGpu); };
  const auto floats = [](const Tensor& x) { return copy_to(to_floats(x), kGpu); };
  const auto empty = [](DType dtype, const Shape& shape) {
    return copy_to(dtype == DType::BF16 ? to_bf16(poisoned(DType::F32, shape)) : poisoned(dtype, shape), kGpu);
  };
  const Tensor q = halves(in.q), k = halves(in.k), v = halves(in.v), d_o = halves(c.d_o), g = floats(in.g), beta = floats(in.beta);
  const Tensor initial = floats(in.initial_state), dfinal = floats(c.dfinal_state), cu_seqlens = copy_to(in.cu_seqlens, kGpu);
  const Shape wide = in.q.view().shape(), states = in.initial_state.view().shape();
  const int64_t dim = in.sizes.key_dim;
  const Tensor saved = empty(DType::F32, {kda_state_rows(in.sizes.tokens(), in.sizes.documents(), dim), in.sizes.heads, dim, dim});
  Outputs r{.o = empty(DType::BF16, wide),
            .final_state = empty(DType::F32, states),
            .dq = empty(DType::F32, wide),
            .dk = empty(DType::F32, wide),
            .dv = empty(DType::F32, wide),
            .dg = empty(DType::F32, wide),
            .dbeta = empty(DType::F32, in.beta.view().shape()),
            .dinitial_state = empty(DType::F32, states)};
  const KdaForward forward{.q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = in.scale,
                           .tiles = in.tiles, .initial_state = initial, .o = r.o, .final_state = r.final_state, .chunk_states = saved};
  REQUIRE(cuda::is_for_kda_hopper(kGpu, forward));
  kda_forward(ctx, forward);
  kda_backward(ctx, {.d_o = d_o, .q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = in.scale,
                     .tiles = in.tiles, .chunk_states = saved, .dfinal_state = dfinal, .dq = r.dq, .dk = r.dk, .dv = r.dv, .dg = r.dg,
                     .dbeta = r.dbeta, .dinitial_state = r.dinitial_state});
  ctx.cuda_context().stream().synchronize();
  for (const auto& [name, member] : kOutputs) {
    r.*member = copy_to(r.*member, Device{});
  }
  return r;
}

Outputs run_on_cpu(const Case& c) {
  const KdaResult forward = run_chunkwise(c.inputs);
  const KdaGradients back = run_backward(c.inputs, c.d_o, c.dfinal_state);
  const auto copy = [](const Tensor& x) { return converted(x, DType::F64); };
  return {.o = copy(forward.o), .final_state = copy(forward.final_state), .dq = copy(back.dq), .dk = copy(back.dk), .dv = copy(back.dv),
          .dg = copy(back.dg), .dbeta = copy(back.dbeta), .dinitial_state = copy(back.dinitial_state)};
}

void check_parity(const char* title, const Case& c) {
  ExecContext ctx = hopper();
  const Outputs got = run_on_gpu(c, ctx), again = run_on_gpu(c, ctx), wanted = run_on_cpu(c);
  for (const auto& [name, member] : kOutputs) {
    const Difference diff = difference(got.*member, wanted.*member);
    fmt::print("parity {:<22} {:<14} {:<5} {:.2e}\n", "kda_hopper", name, "bf16", diff.relative_l2);
    INFO(title << ", " << name << ": " << diff.text);
    CHECK(diff.within(bound_of(name)));
    CHECK(bitwise_equal(got.*member, again.*member));
  }
}

// Nothing is left from one token to the next: gradients of gates and initial states are zero, the others those of tokens alone.
void check_alone(const Case& c) {
  ExecContext ctx = hopper();
  const Outputs got = run_on_gpu(c, ctx), wanted = run_on_cpu(c);
  for (const auto& [name, member] : kOutputs) {
    INFO(name);
    if (name == std::string_view("dg") || name == std::string_view("dinitial_state")) {
      for (const double value : to_doubles(got.*member)) {
        REQUIRE(std::abs(value) < 1e-20);
      }
    } else {
      CHECK(difference(got.*member, wanted.*member).within(bound_of(name)));
    }
  }
}

// What softplus decay does to gates: all strengths, tokens that wipe the state, channels that never or always forget.
void set_unbounded_gates(Case& c) {
  const TensorView g = c.inputs.g;
  const auto values = c.inputs.g.values<double>();
  const auto channels = static_cast<size_t>(g.size(1) * g.size(2));
  for (size_t i = 0; i < values.size(); ++i) {
    const double strength[] = {12, 1, 0.05, 200, 0, 0.3, 1};
    values[i] *= strength[i % channels % 7];
    if (i % channels % 7 == 6) {
      values[i] = i / channels % 6 == 3 ? -1000 : 1e-2 * values[i];
    }
  }
  c.round();
}

const std::vector<int64_t> kRagged{129, 0, 1, 15, 16, 17, 0, 63, 64, 65, 2};

}  // namespace

TEST_CASE("kda on Hopper equals the CPU in double", "[kda][cuda]") {
  for (const int64_t dim : {64, 128}) {
    const KdaSizes ragged{.lengths = kRagged, .heads = 3, .key_dim = dim, .value_dim = dim};
    check_parity("ragged", Case(ragged));
    check_parity("small gradients", Case(ragged, 1e-7));
    Case saturated(ragged);
    set_all(saturated.inputs.g, -5);
    check_parity("gates at their bound", saturated);
    Case still(ragged);
    set_all(still.inputs.g, 0);
    check_parity("no decay", still);
  }
}

TEST_CASE("kda on Hopper with nearly parallel keys and beta near 1", "[kda][cuda]") {
  for (const int64_t dim : {64, 128}) {
    Case c({.lengths = {300}, .heads = 2, .key_dim = dim, .value_dim = dim});
    const auto k = c.inputs.k.values<double>();
    for (size_t i = static_cast<size_t>(2 * dim); i < k.size(); ++i) {
      k[i] = k[i % static_cast<size_t>(2 * dim)] + 0.02 * k[i];
    }
    set_all(c.inputs.beta, 0.99);
    set_all(c.inputs.g, -1e-2);
    c.round();
    check_parity("parallel keys", c);
  }
}

// Times a factor: value columns `column`, `column` + 16, ...
void scale_columns(Tensor& x, int64_t column, double factor) {
  const auto values = x.values<double>();
  for (size_t i = static_cast<size_t>(column); i < values.size(); i += 16) {
    values[i] *= factor;
  }
}

// Columns of zeros have no unit of their own, and the others are in different ones.
TEST_CASE("kda on Hopper with value columns of very different sizes", "[kda][cuda]") {
  for (const int64_t dim : {64, 128}) {
    Case c({.lengths = {130}, .heads = 2, .key_dim = dim, .value_dim = dim}, 1e-7);
    for (Tensor* x : {&c.d_o, &c.dfinal_state}) {
      scale_columns(*x, 3, 0);
      scale_columns(*x, 5, 1.0 / 64);
      scale_columns(*x, 6, 64);
    }
    for (Tensor* x : {&c.inputs.v, &c.inputs.initial_state}) {
      for (int64_t column = 0; column < 16; ++column) {
        scale_columns(*x, column, column == 4 ? 0 : column == 7 ? 1e-6 : 1e-5);
      }
    }
    c.round();
    check_parity("columns of different sizes", c);
  }
}

TEST_CASE("what the Hopper version saves has room in chunk_states", "[kda]") {
  for (const int64_t dim : {64, 128}) {
    for (const int64_t heads : {1, 3}) {
      for (const int64_t tokens : {1, 64, 100, 4096, 100000}) {
        for (const int64_t documents : {1, 7}) {
          const kda::cuda::Sizes sizes{.tokens = tokens, .heads = heads, .head_dim = dim, .documents = documents};
          CHECK(kda::cuda::saved_bytes(sizes) <= 4 * kda_state_rows(tokens, documents, dim) * heads * dim * dim);
        }
      }
    }
  }
}

TEST_CASE("kda on Hopper with gates without a bound equals the CPU in double", "[kda][cuda]") {
  for (const int64_t dim : {64, 128}) {
    const KdaSizes ragged{.lengths = kRagged, .heads = 3, .key_dim = dim, .value_dim = dim};
    Case mixed(ragged, 1, KdaTiles::Pairwise);
    set_unbounded_gates(mixed);
    check_parity("unbounded", mixed);
    Case small(ragged, 1e-7, KdaTiles::Pairwise);
    set_unbounded_gates(small);
    check_parity("unbounded, small gradients", small);
    for (const double gate : {0.0, -1e-2, -5.0}) {
      Case equal(ragged, 1, KdaTiles::Pairwise);
      set_all(equal.inputs.g, gate);
      equal.round();
      check_parity("unbounded, equal gates", equal);
    }
    for (const double gate : {-60.0, -1000.0}) {
      Case alone({.lengths = {70, 1}, .heads = 2, .key_dim = dim, .value_dim = dim}, 1, KdaTiles::Pairwise);
      set_all(alone.inputs.g, gate);
      check_alone(alone);
    }
    Case wiped(ragged, 1, KdaTiles::Pairwise);
    const auto g = wiped.inputs.g.values<double>();
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = i / static_cast<size_t>(3 * dim) % 5 == 3 ? -1000 : 0.02 * g[i];
    }
    wiped.round();
    check_parity("unbounded, wiped", wiped);
  }
}

TEST_CASE("planning kda for a GPU counts the scratch of the version that will serve", "[kda]") {
  ExecContext planning = ExecContext::plan(kGpu);
  const auto keys = [](DType dtype, int64_t dim) { return planned(dtype, {100, 2, dim}); };
  const auto forward = [&](DType dtype, int64_t dim) {
    return KdaForward{.q = keys(dtype, dim), .k = keys(dtype, dim), .v = keys(dtype, dim), .g = keys(DType::F32, dim),
                      .beta = planned(DType::F32, {100, 2}), .cu_seqlens = planned(DType::I64, {2}), .o = keys(dtype, dim)};
  };
  CHECK_FALSE(cuda::is_for_kda_hopper(kGpu, forward(DType::F32, 128)));
  CHECK_FALSE(cuda::is_for_kda_hopper(kGpu, forward(DType::BF16, 32)));
  KdaForward pairwise = forward(DType::BF16, 128);
  pairwise.tiles = KdaTiles::Pairwise;
  CHECK(cuda::is_for_kda_hopper(kGpu, pairwise) == cuda::has_kda_hopper(kGpu));
  const KdaForward op = forward(DType::BF16, 128);
  CHECK(cuda::is_for_kda_hopper(kGpu, op) == cuda::has_kda_hopper(kGpu));
  if (cuda::has_kda_hopper(kGpu)) {
    kda_forward(planning, op);
    Arena arena = Arena::measuring(kGpu, "expected");
    static_cast<void>(cuda::take_kda_hopper_scratch(arena, op));
    CHECK(planning.scratch().high_water_bytes() == arena.high_water_bytes());
  }
}

// One document of several segments, whose states are merged: with decay, where nothing old arrives, and without.
TEST_CASE("kda on Hopper with a long sequence of one head", "[kda][cuda]") {
  Case c({.lengths = {17000}, .heads = 1, .key_dim = 64, .value_dim = 64});
  check_parity("long", c);
  set_all(c.inputs.g, -1e-4);
  check_parity("long, little decay", c);
}

TEST_CASE("kda on Hopper: a document packed with others is bitwise the document alone", "[kda][cuda]") {
  ExecContext ctx = hopper();
  const KdaTiles tiles = GENERATE(KdaTiles::Dense, KdaTiles::Pairwise);
  const std::vector<int64_t> lengths = {65, 1, 0, 140};
  Case packed({.lengths = lengths, .heads = 2, .key_dim = 128, .value_dim = 128}, 1, tiles);
  if (tiles == KdaTiles::Pairwise) {
    set_unbounded_gates(packed);
  }
  const Outputs whole = run_on_gpu(packed, ctx);
  int64_t begin = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    const auto index = static_cast<int64_t>(d);
    Case alone;
    alone.inputs = packed.inputs.document(begin, lengths[d], index);
    alone.d_o = rows_of(packed.d_o, begin, begin + lengths[d]);
    alone.dfinal_state = rows_of(packed.dfinal_state, index, index + 1);
    const Outputs got = run_on_gpu(alone, ctx);
    for (const auto& [name, member] : kOutputs) {
      const bool of_document = std::string_view(name).find("state") != std::string_view::npos;
      const TensorView all = whole.*member;
      const TensorView part = of_document ? all.slice(0, index, index + 1) : all.slice(0, begin, begin + lengths[d]);
      INFO("document " << d << ", " << name);
      CHECK(bitwise_equal(part, got.*member));
    }
    begin += lengths[d];
  }
}

TEST_CASE("kda on Hopper: later tokens change no bit of the prefix", "[kda][cuda]") {
  ExecContext ctx = hopper();
  constexpr int64_t tokens = 129;
  const KdaTiles tiles = GENERATE(KdaTiles::Dense, KdaTiles::Pairwise);
  Case c({.lengths = {tokens}, .heads = 2, .key_dim = 128, .value_dim = 128}, 1, tiles);
  if (tiles == KdaTiles::Pairwise) {
    set_unbounded_gates(c);
  }
  for (const int64_t prefix : {1, 15, 16, 17, 63, 64, 65, 80}) {
    Case cut;
    cut.d_o = converted(c.d_o, DType::F64);
    set_all(cut.d_o.view().slice(0, prefix, tokens), 0);
    cut.dfinal_state = Tensor::zeros(DType::F64, c.dfinal_state.view().shape());
    Case alone;
    alone.dfinal_state = Tensor::zeros(DType::F64, c.dfinal_state.view().shape());
    alone.inputs = c.inputs.document(0, prefix, 0);
    alone.d_o = rows_of(c.d_o, 0, prefix);
    const Outputs wanted = run_on_gpu(alone, ctx);
    for (const double gate : {0.0, tiles == KdaTiles::Dense ? -5.0 : -1000.0}) {
      cut.inputs = c.inputs.document(0, tokens, 0);
      set_all(cut.inputs.g.view().slice(0, prefix, tokens), gate);
      set_all(cut.inputs.v.view().slice(0, prefix, tokens), 4);
      const Outputs got = run_on_gpu(cut, ctx);
      for (const auto& [name, member] : kOutputs) {
        if (std::string_view(name) != "final_state") {
          const int64_t rows = std::string_view(name) == "dinitial_state" ? 1 : prefix;
          INFO("prefix " << prefix << ", later gates " << gate << ", " << name);
          CHECK(bitwise_equal((got.*member).view().slice(0, 0, rows), (wanted.*member).view().slice(0, 0, rows)));
        }
      }
    }
  }
}

}  // namespace longhaul
