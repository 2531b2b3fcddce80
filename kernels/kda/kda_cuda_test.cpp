// The general CUDA version against the CPU on the same inputs (rounded to the compute type): ragged documents, widths that
// fill no tile, both kinds of gates, gates at their bound, states in and out, and gradients. Then what must hold to the last
// bit: two runs, bitwise causality, and independence from what scratch held and how chunks are grouped.
#include <cmath>
#include <limits>

#include "kernels/gpu_test.h"
#include "kernels/kda/kda_cuda.h"
#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();

struct Gpu {
  ExecContext ctx;
  Gpu() : ctx(make()) {}

 private:
  static ExecContext make() {
    if (find_gpus().empty()) {
      SKIP("no GPU");
    }
    return ExecContext::cuda(kGpu);
  }
};

// The type of inputs and outputs that are not of the accurate type.
Tensor rounded(const TensorView& from, DType dtype) {
  const std::vector<double> values = to_doubles(from);
  Tensor to(dtype, from.shape());
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::BF16) {
      to.values<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
    } else {
      to.values<float>()[i] = static_cast<float>(values[i]);
    }
  }
  return to;
}

Tensor on_gpu(const TensorView& from, DType dtype) { return copy_to(rounded(from, dtype), kGpu); }
Tensor poisoned_on_gpu(DType dtype, const Shape& shape) { return on_gpu(poisoned(DType::F32, shape), dtype); }
Tensor on_host(const Tensor& from) { return copy_to(from, Device{}); }

// A whole problem: the inputs of KdaProblem, gradients of outputs, and what may be absent.
struct Problem {
  KdaProblem inputs;  // f32 holding values of the compute type
  DType compute = DType::F32;
  Tensor d_o, dfinal_state;
  bool has_states = true;

  Problem(const KdaSizes& sizes, KdaTiles tiles, DType dtype, double gate = kNan, bool with_states = true)
      : compute(dtype), has_states(with_states) {
    KdaProblem exact(sizes, tiles);
    if (!std::isnan(gate)) {
      set_all(exact.g, gate);
    }
    inputs = exact.in(DType::F32);
    for (Tensor* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
      *tensor = converted(rounded(*tensor, dtype), DType::F32);
    }
    d_o = converted(rounded(random_tensor(DType::F32, inputs.v.view().shape(), "kda.d_o"), dtype), DType::F32);
    dfinal_state = random_tensor(DType::F32, states(sizes.documents()), "kda.dfinal_state");
    if (!has_states) {
      inputs.initial_state = Tensor();
    }
  }
  [[nodiscard]] Shape states(int64_t count) const { return {count, inputs.sizes.heads, inputs.sizes.key_dim, inputs.sizes.value_dim}; }
};

struct Outputs {
  Tensor o, final_state, chunk_states, dq, dk, dv, dg, dbeta, dinitial_state;

  template <class Fn>
  void each(Fn&& fn) const {
    const std::pair<const char*, const Tensor*> all[] = {{"o", &o}, {"final_state", &final_state}, {"dq", &dq}, {"dk", &dk}, {"dv", &dv},
                                                         {"dg", &dg}, {"dbeta", &dbeta}, {"dinitial_state", &dinitial_state}};
    for (const auto& [name, tensor] : all) {
      fn(std::string(name), *tensor);
    }
  }
};

enum class Passes : uint8_t { Forward, Both };

// How the kernels are called: through kda.h, which may choose others for some sizes; or themselves, with as many chunks in
// scratch as they choose, or with that many.
constexpr int64_t kThroughKda = 0, kGeneral = -1;

Outputs run_on_gpu(const Problem& p, ExecContext& ctx, Passes passes = Passes::Both, int64_t group = kThroughKda) {
  const KdaProblem& in = p.inputs;
  const Tensor q = on_gpu(in.q, p.compute), k = on_gpu(in.k, p.compute), v = on_gpu(in.v, p.compute), d_o = on_gpu(p.d_o, p.compute);
  const Tensor g = copy_to(in.g, kGpu), beta = copy_to(in.beta, kGpu), cu_seqlens = copy_to(in.cu_seqlens, kGpu);
  const Tensor initial = p.has_states ? copy_to(in.initial_state, kGpu) : Tensor();
  const Tensor dfinal = p.has_states ? copy_to(p.dfinal_state, kGpu) : Tensor();
  const Shape keys = in.q.view().shape(), values = in.v.view().shape(), states = p.states(in.sizes.documents());
  Outputs r{.o = poisoned_on_gpu(p.compute, values),
            .final_state = poisoned_on_gpu(DType::F32, states),
            .chunk_states = poisoned_on_gpu(DType::F32, p.states(kda_state_rows(in.sizes.tokens(), in.sizes.documents(), in.sizes.key_dim))),
            .dq = poisoned_on_gpu(DType::F32, keys),
            .dk = poisoned_on_gpu(DType::F32, keys),
            .dv = poisoned_on_gpu(DType::F32, values),
            .dg = poisoned_on_gpu(DType::F32, keys),
            .dbeta = poisoned_on_gpu(DType::F32, in.beta.view().shape()),
            .dinitial_state = poisoned_on_gpu(DType::F32, states)};
  const KdaForward forward{.q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = in.scale, .tiles = in.tiles,
                           .initial_state = initial, .o = r.o, .final_state = r.final_state, .chunk_states = r.chunk_states};
  const KdaBackward backward{.d_o = d_o, .q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = in.scale,
                             .tiles = in.tiles, .chunk_states = r.chunk_states, .dfinal_state = dfinal, .dq = r.dq, .dk = r.dk,
                             .dv = r.dv, .dg = r.dg, .dbeta = r.dbeta, .dinitial_state = r.dinitial_state};
  if (group != kThroughKda) {
    const ArenaScope scope(ctx.scratch());
    cuda::KdaScratch scratch = cuda::take_kda_scratch(ctx.scratch(), backward);
    if (group != kGeneral) {
      REQUIRE(group <= scratch.group_chunks);
      scratch.group_chunks = group;
    }
    cuda::kda_forward(ctx, forward, scratch);
    cuda::kda_backward(ctx, backward, scratch);
  } else {
    kda_forward(ctx, forward);
    if (passes == Passes::Both) {
      kda_backward(ctx, backward);
    }
  }
  ctx.cuda_context().stream().synchronize();
  for (Tensor* tensor : {&r.o, &r.final_state, &r.dq, &r.dk, &r.dv, &r.dg, &r.dbeta, &r.dinitial_state, &r.chunk_states}) {
    *tensor = on_host(*tensor);
  }
  return r;
}

Outputs run_on_cpu(const Problem& p) {
  const KdaResult forward = run_chunkwise(p.inputs);
  const KdaGradients back = run_backward(p.inputs, p.d_o, p.has_states ? p.dfinal_state.view() : TensorView());
  const auto copy = [](const TensorView& view) { return converted(view, DType::F32); };
  return {.o = copy(forward.o), .final_state = copy(forward.final_state), .chunk_states = {}, .dq = copy(back.dq), .dk = copy(back.dk),
          .dv = copy(back.dv), .dg = copy(back.dg), .dbeta = copy(back.dbeta), .dinitial_state = copy(back.dinitial_state)};
}

double bound(const std::string& name, DType compute) {
  if (compute == DType::F32) {
    return 1e-4;
  }
  if (name == "o" || name == "final_state") {
    return 5e-3;
  }
  return name == "dg" || name == "dbeta" ? 2e-2 : 8e-3;
}

// The largest absolute value, which errors of elements are held against.
double scale_of(const Tensor& tensor) {
  double largest = 0;
  for (const double x : to_doubles(tensor)) {
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

void check_parity(const std::string& name, const Problem& p) {
  Gpu gpu;
  const Outputs got = run_on_gpu(p, gpu.ctx, Passes::Both, kGeneral), again = run_on_gpu(p, gpu.ctx, Passes::Both, kGeneral);
  const Outputs wanted = run_on_cpu(p);
  std::vector<const Tensor*> expected, repeated;
  wanted.each([&](const std::string&, const Tensor& tensor) { expected.push_back(&tensor); });
  again.each([&](const std::string&, const Tensor& tensor) { repeated.push_back(&tensor); });
  size_t i = 0;
  got.each([&](const std::string& output, const Tensor& tensor) {
    const Difference diff = difference(tensor, *expected[i]);
    const double scale = scale_of(*expected[i]);
    fmt::print("parity {:<22} {:<14} {:<5} {:.2e}\n", "kda", output, to_string(p.compute), diff.relative_l2);
    INFO(name << ", " << output << " in " << to_string(p.compute) << ": " << diff.text);
    CHECK(diff.within(bound(output, p.compute)));
    if (p.compute == DType::F32) {
      CHECK(diff.max_abs <= 1e-4 * scale);
    }
    CHECK(bitwise_equal(tensor, *repeated[i]));
    ++i;
  });
}

const std::vector<int64_t> kRagged{129, 0, 1, 15, 16, 17, 0, 63, 64, 65, 2};

TEST_CASE("kda on the GPU equals the CPU", "[kda][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const KdaTiles tiles : {KdaTiles::Dense, KdaTiles::Pairwise}) {
      const std::pair<int64_t, int64_t> widths[] = {{16, 16}, {48, 48}, {64, 64}, {128, 128}, {40, 24}, {8, 136}, {256, 72}};
      for (const auto& [key_dim, value_dim] : widths) {
        const Problem p({.lengths = kRagged, .heads = 3, .key_dim = key_dim, .value_dim = value_dim}, tiles, dtype);
        check_parity(fmt::format("{} x {}, {} tiles", key_dim, value_dim, tiles == KdaTiles::Dense ? "dense" : "pairwise"), p);
      }
    }
  }
}

TEST_CASE("kda on the GPU with gates at their ends and without states", "[kda][cuda]") {
  for (const DType dtype : kGpuTypes) {
    const KdaSizes sizes{.lengths = {64, 100, 200}, .heads = 2, .key_dim = 64, .value_dim = 40};
    check_parity("gates of -5, dense", Problem(sizes, KdaTiles::Dense, dtype, -5));
    check_parity("gates of -5, pairwise", Problem(sizes, KdaTiles::Pairwise, dtype, -5));
    check_parity("gates of -60", Problem(sizes, KdaTiles::Pairwise, dtype, -60));
    check_parity("gates of -2000", Problem(sizes, KdaTiles::Pairwise, dtype, -2000));
    check_parity("no decay", Problem(sizes, KdaTiles::Dense, dtype, 0));
    check_parity("no states", Problem(sizes, KdaTiles::Dense, dtype, kNan, false));
  }
}

TEST_CASE("kda on the GPU with nearly parallel keys and beta near 1", "[kda][cuda]") {
  Problem p({.lengths = {300}, .heads = 1, .key_dim = 64, .value_dim = 64}, KdaTiles::Dense, DType::F32, -1e-3);
  const auto k = p.inputs.k.values<float>();
  for (size_t i = 64; i < k.size(); ++i) {
    k[i] = k[i % 64] + 1e-3f * k[i];
  }
  set_all(p.inputs.beta, 0.999);
  check_parity("parallel keys", p);
}

TEST_CASE("kda on the GPU with no documents, and with empty ones alone", "[kda][cuda]") {
  check_parity("empty document", Problem({.lengths = {0}}, KdaTiles::Dense, DType::F32));
  check_parity("empty documents", Problem({.lengths = {0, 0, 0}}, KdaTiles::Dense, DType::BF16));
  check_parity("no documents", Problem({.lengths = {}}, KdaTiles::Dense, DType::F32));
}

// d_o is zero after the prefix, so that gradients of the prefix must not change either.
void cut_loss(Problem& p, int64_t prefix) {
  set_all(p.d_o.view().slice(0, prefix, p.inputs.sizes.tokens()), 0);
  set_all(p.dfinal_state, 0);
}

Problem document_of(const Problem& whole, int64_t length) {
  Problem p = Problem({.lengths = {1}}, whole.inputs.tiles, whole.compute);
  p.inputs = whole.inputs.document(0, length, 0);
  p.d_o = rows_of(whole.d_o, 0, length);
  p.dfinal_state = Tensor::zeros(DType::F32, whole.states(1));
  return p;
}

void check_same_prefix(const Outputs& got, const Outputs& wanted, int64_t prefix, Passes passes) {
  const auto same = [&](const char* name, const Tensor& a, const Tensor& b) {
    INFO(name);
    CHECK(bitwise_equal(a.view().slice(0, 0, prefix), b.view().slice(0, 0, prefix)));
  };
  same("o", got.o, wanted.o);
  if (passes == Passes::Both) {
    same("dq", got.dq, wanted.dq);
    same("dk", got.dk, wanted.dk);
    same("dv", got.dv, wanted.dv);
    same("dg", got.dg, wanted.dg);
    same("dbeta", got.dbeta, wanted.dbeta);
    CHECK(bitwise_equal(got.dinitial_state, wanted.dinitial_state));
  }
}

TEST_CASE("kda on the GPU: later tokens, other or absent, change no bit of the prefix", "[kda][cuda]") {
  Gpu gpu;
  for (const DType dtype : kGpuTypes) {
    for (const KdaTiles tiles : {KdaTiles::Dense, KdaTiles::Pairwise}) {
      for (const int64_t prefix : {1, 7, 15, 16, 17, 63, 64, 65, 80}) {
        Problem whole({.lengths = {129}, .heads = 2, .key_dim = 40, .value_dim = 24}, tiles, dtype);
        cut_loss(whole, prefix);
        INFO("prefix " << prefix << ", " << to_string(dtype) << (tiles == KdaTiles::Dense ? ", dense" : ", pairwise"));
        const Outputs wanted = run_on_gpu(document_of(whole, prefix), gpu.ctx);
        check_same_prefix(run_on_gpu(whole, gpu.ctx), wanted, prefix, Passes::Both);
        check_same_prefix(run_on_gpu(document_of(whole, prefix + 1), gpu.ctx), wanted, prefix, Passes::Both);
        const auto set_future = [&](const Tensor& tensor, double value) { set_all(tensor.view().slice(0, prefix, 129), value); };
        for (const double gate : {-5.0, 0.0}) {
          set_future(whole.inputs.g, gate);
          check_same_prefix(run_on_gpu(whole, gpu.ctx), wanted, prefix, Passes::Both);
        }
        set_future(whole.inputs.q, 0.25);
        set_future(whole.inputs.k, -0.25);
        set_future(whole.inputs.v, 1 << 20);
        set_future(whole.inputs.beta, 1);
        check_same_prefix(run_on_gpu(whole, gpu.ctx), wanted, prefix, Passes::Both);
        for (const double value : {std::numeric_limits<double>::infinity(), kNan}) {
          for (const Tensor* tensor : {&whole.inputs.q, &whole.inputs.k, &whole.inputs.v, &whole.inputs.g, &whole.inputs.beta}) {
            set_future(*tensor, value);
          }
          check_same_prefix(run_on_gpu(whole, gpu.ctx, Passes::Forward), wanted, prefix, Passes::Forward);
        }
      }
    }
  }
}

TEST_CASE("kda on the GPU: a document packed with others is bitwise the document alone", "[kda][cuda]") {
  Gpu gpu;
  for (const DType dtype : kGpuTypes) {
    const std::vector<int64_t> lengths = {65, 1, 17, 0, 64, 140};
    const Problem p({.lengths = lengths, .heads = 2, .key_dim = 48, .value_dim = 32}, KdaTiles::Dense, dtype);
    const Outputs packed = run_on_gpu(p, gpu.ctx);
    int64_t begin = 0;
    for (size_t d = 0; d < lengths.size(); ++d) {
      const auto index = static_cast<int64_t>(d);
      const int64_t end = begin + lengths[d];
      Problem alone({.lengths = {1}}, p.inputs.tiles, dtype);
      alone.inputs = p.inputs.document(begin, lengths[d], index);
      alone.d_o = rows_of(p.d_o, begin, end);
      alone.dfinal_state = rows_of(p.dfinal_state, index, index + 1);
      const Outputs wanted = run_on_gpu(alone, gpu.ctx);
      INFO("document " << d);
      CHECK(bitwise_equal(packed.o.view().slice(0, begin, end), wanted.o));
      CHECK(bitwise_equal(packed.dq.view().slice(0, begin, end), wanted.dq));
      CHECK(bitwise_equal(packed.dk.view().slice(0, begin, end), wanted.dk));
      CHECK(bitwise_equal(packed.dv.view().slice(0, begin, end), wanted.dv));
      CHECK(bitwise_equal(packed.dg.view().slice(0, begin, end), wanted.dg));
      CHECK(bitwise_equal(packed.dbeta.view().slice(0, begin, end), wanted.dbeta));
      CHECK(bitwise_equal(packed.final_state.view().slice(0, index, index + 1), wanted.final_state));
      CHECK(bitwise_equal(packed.dinitial_state.view().slice(0, index, index + 1), wanted.dinitial_state));
      begin = end;
    }
  }
}

TEST_CASE("kda on the GPU: groups of chunks and the width of slices change no bit", "[kda][cuda]") {
  Gpu gpu;
  const auto check = [&](const Outputs& got, const Outputs& wanted) {
    std::vector<const Tensor*> expected;
    wanted.each([&](const std::string&, const Tensor& tensor) { expected.push_back(&tensor); });
    size_t i = 0;
    got.each([&](const std::string& output, const Tensor& tensor) {
      INFO(output);
      CHECK(bitwise_equal(tensor, *expected[i]));
      ++i;
    });
  };
  for (const DType dtype : kGpuTypes) {
    const KdaSizes sizes{.lengths = {400, 0, 3, 64, 130, 70, 0}, .heads = 3, .key_dim = 72, .value_dim = 40};
    const Problem p(sizes, KdaTiles::Dense, dtype);
    const Outputs wanted = run_on_gpu(p, gpu.ctx, Passes::Both, kGeneral);
    for (const int64_t group : {1, 2, 3, 5}) {
      INFO("groups of " << group);
      check(run_on_gpu(p, gpu.ctx, Passes::Both, group), wanted);
    }
  }
  // 80 documents of one head get wide slices; the first of them alone narrow ones.
  const Problem many({.lengths = std::vector<int64_t>(80, 70), .heads = 1, .key_dim = 32, .value_dim = 64}, KdaTiles::Dense, DType::F32);
  const Outputs packed = run_on_gpu(many, gpu.ctx);
  Problem alone = document_of(many, 70);
  alone.dfinal_state = rows_of(many.dfinal_state, 0, 1);
  check_same_prefix(packed, run_on_gpu(alone, gpu.ctx), 70, Passes::Forward);
}

TEST_CASE("kda on the GPU takes the scratch that was planned", "[kda][cuda]") {
  const KdaSizes sizes{.lengths = {100, 30}, .heads = 2, .key_dim = 24, .value_dim = 40};
  const auto plan = [](const Shape& shape, DType dtype = DType::F32) { return planned(dtype, shape); };
  const Shape keys{130, 2, 24}, values{130, 2, 40}, gates{130, 2}, states{kda_state_rows(130, 2, 24), 2, 24, 40};
  ExecContext planning = ExecContext::plan(kGpu);
  kda_forward(planning, {.q = plan(keys), .k = plan(keys), .v = plan(values), .g = plan(keys), .beta = plan(gates),
                         .cu_seqlens = plan({3}, DType::I64), .o = plan(values), .chunk_states = plan(states)});
  const int64_t forward = planning.scratch().high_water_bytes();
  kda_backward(planning, {.d_o = plan(values), .q = plan(keys), .k = plan(keys), .v = plan(values), .g = plan(keys), .beta = plan(gates),
                          .cu_seqlens = plan({3}, DType::I64), .chunk_states = plan(states), .dq = plan(keys), .dk = plan(keys),
                          .dv = plan(values), .dg = plan(keys), .dbeta = plan(gates)});
  CHECK(forward > 0);
  CHECK(planning.scratch().high_water_bytes() > forward);
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  CudaContext cuda(kGpu);
  const int64_t bytes = planning.scratch().high_water_bytes();
  ExecContext ctx(kGpu, ExecContext::Mode::Execute, Arena(kGpu, "scratch", bytes), &cuda);
  (void)run_on_gpu(Problem(sizes, KdaTiles::Dense, DType::F32), ctx);
  CHECK(ctx.scratch().high_water_bytes() == bytes);
}

TEST_CASE("planning kda for a GPU names widths that it does not have", "[kda]") {
  ExecContext planning = ExecContext::plan(kGpu);
  const auto forward = [&](int64_t key_dim, int64_t value_dim) {
    const TensorView q = planned(DType::BF16, {10, 2, key_dim}), v = planned(DType::BF16, {10, 2, value_dim});
    kda_forward(planning, {.q = q, .k = q, .v = v, .g = planned(DType::F32, {10, 2, key_dim}), .beta = planned(DType::F32, {10, 2}),
                           .cu_seqlens = planned(DType::I64, {2}), .o = v});
  };
  check_shape_error("key_dim", [&] { forward(20, 16); });
  check_shape_error("value_dim", [&] { forward(16, 264); });
  CHECK_NOTHROW(forward(256, 8));
}

}  // namespace
}  // namespace longhaul
