// Checks and times the CUDA kernels of Kimi Delta Attention on a GPU. It needs nvcc alone:
//   nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++20 -O3 -I. tools/bench/kda_cuda_bench.cu -o kda_cuda_bench
//   kda_cuda_bench check | small | time | segments | backward | unbounded | profile
// The reference is the recurrence of Kimi Linear, arXiv:2510.26692, eq. 1, token by token in double on the same inputs.
#include "tools/bench/kda_cuda_reference.cuh"

namespace {

struct ForwardRun {
  Array<uint16_t> o;
  Array<float> final_state;
  Array<unsigned char> workspace;
  Array<unsigned char> saved;
  kda::ForwardArgs args;

  ForwardRun(const Problem& p, kda::Products products, int64_t segment_chunks = 0, bool training = false)
      : o(p.values()),
        final_state(p.initial.count()),
        workspace(kda::forward_workspace_bytes(p.sizes, segment_chunks)),
        saved(training ? kda::saved_bytes(p.sizes) : 0),
        args{.sizes = p.sizes,
             .in = p.arrays(),
             .initial_state = p.initial.get(),
             .o = o.get(),
             .o_stride = p.stride(),
             .final_state = final_state.get(),
             .saved = training ? saved.get() : nullptr,
             .workspace = workspace.get(),
             .segment_chunks = segment_chunks,
             .products = products} {}
  void operator()() const { require(kda::forward(args), "forward"); }
};

struct BackwardRun {
  Array<float> dq, dk, dv, dg, dbeta, dinitial;
  Array<unsigned char> workspace;
  kda::BackwardArgs args;

  BackwardRun(const Problem& p, const Arriving& arriving, const ForwardRun& forward, kda::Products products, int64_t segment_chunks = 0)
      : dq(p.values()), dk(p.values()), dv(p.values()), dg(p.values()), dbeta(p.sizes.tokens * p.sizes.heads),
        dinitial(p.initial.count()),
        workspace(kda::backward_workspace_bytes(p.sizes, segment_chunks)),
        args{.sizes = p.sizes,
             .in = p.arrays(),
             .d_o = arriving.d_o.get(),
             .d_o_stride = p.stride(),
             .dfinal_state = arriving.dfinal.get(),
             .saved = forward.saved.get(),
             .dq = dq.get(),
             .dk = dk.get(),
             .dv = dv.get(),
             .dg = dg.get(),
             .dbeta = dbeta.get(),
             .dinitial_state = dinitial.get(),
             .workspace = workspace.get(),
             .segment_chunks = segment_chunks,
             .products = products} {}
  void operator()() const { require(kda::backward(args), "backward"); }
  [[nodiscard]] std::vector<std::vector<float>> host() const {
    return {dq.host(), dk.host(), dv.host(), dg.host(), dbeta.host(), dinitial.host()};
  }
};

bool all_right = true;

void report(const char* what, double error, double bound) {
  const bool right = error < bound;
  all_right = all_right && right;
  std::printf(" %s %.5f%s", what, error, right ? "" : " WRONG");
}

void check_forward(const char* name, const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind,
                   int64_t segment_chunks = 0) {
  const Problem p(lengths, heads, dim, kind);
  const Reference expected(p);
  for (const kda::Products products : {kda::Products::Warp, kda::Products::Warpgroup}) {
    const ForwardRun run(p, products, segment_chunks, true);
    run();
    require(cudaDeviceSynchronize(), name);
    std::printf("%-28s %-13s d %3d %-9s:", name, kKindNames[static_cast<int>(kind)], static_cast<int>(dim),
                products == kda::Products::Warp ? "mma.sync" : "wgmma");
    report("o", relative_error(run.o, expected.o), 0.005);
    report("state", relative_error(run.final_state, expected.final_state), 0.005);
    const std::vector<uint16_t> first = run.o.host();
    run();
    require(cudaDeviceSynchronize(), name);
    if (run.o.host() != first) {
      all_right = false;
      std::printf(" NOT DETERMINISTIC");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

void check_backward(const char* name, const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind,
                    int64_t segment_chunks = 0, float scale = 1) {
  const Problem p(lengths, heads, dim, kind);
  const Arriving arriving(p, scale);
  const BackwardReference expected(p, arriving);
  for (const kda::Products products : {kda::Products::Warp, kda::Products::Warpgroup}) {
    const ForwardRun forward(p, products, segment_chunks, true);
    forward();
    const BackwardRun run(p, arriving, forward, products, segment_chunks);
    run();
    require(cudaDeviceSynchronize(), name);
    std::printf("%-12s %-13s d %3d %-5s:", name, kKindNames[static_cast<int>(kind)], static_cast<int>(dim),
                products == kda::Products::Warp ? "mma" : "wgmma");
    // With 64 channels residuals are kept in bf16, whose rounding adds up where they alternate and cancel.
    report("dq", relative_error(run.dq, expected.dq), dim == 64 && kind == Kind::ParallelKeys ? 0.016 : 0.008);
    report("dk", relative_error(run.dk, expected.dk), 0.008);
    report("dv", relative_error(run.dv, expected.dv), 0.008);
    report("dg", relative_error(run.dg, expected.dg), 0.02);
    report("db", relative_error(run.dbeta, expected.dbeta), 0.02);
    report("ds", relative_error(run.dinitial, expected.dinitial), 0.008);
    const auto first = run.host();
    run();
    require(cudaDeviceSynchronize(), name);
    if (run.host() != first) {
      all_right = false;
      std::printf(" NOT DETERMINISTIC");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

// A document alone and packed behind another, and a longer one with the same beginning: the same bits.
void check_bits(int64_t dim) {
  const int64_t heads = 2;
  const Problem alone({700}, heads, dim, Kind::Usual);
  const Problem packed({700, 333}, heads, dim, Kind::Usual);
  const Problem longer({1033}, heads, dim, Kind::Usual);
  const ForwardRun a(alone, kda::Products::Warpgroup);
  const ForwardRun b(packed, kda::Products::Warpgroup);
  const ForwardRun c(longer, kda::Products::Warpgroup);
  for (const ForwardRun* run : {&b, &c}) {
    require(cudaMemcpy(const_cast<float*>(run->args.initial_state), alone.initial.get(), static_cast<size_t>(heads * dim * dim * 4), cudaMemcpyDeviceToDevice), "copy");
  }
  a();
  b();
  c();
  const std::vector<uint16_t> x = a.o.host();
  const std::vector<uint16_t> y = b.o.host();
  const std::vector<uint16_t> z = c.o.host();
  const bool right = std::equal(x.begin(), x.end(), y.begin()) && std::equal(x.begin(), x.end(), z.begin());
  all_right = all_right && right;
  std::printf("bits alone, packed, longer d %d: %s\n", static_cast<int>(dim), right ? "equal" : "DIFFERENT");
}

template <class Fn>
double median_ms(Fn&& fn, int repeats) {
  cudaEvent_t begin;
  cudaEvent_t end;
  require(cudaEventCreate(&begin), "event");
  require(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) {
    fn();
  }
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    require(cudaEventRecord(begin), "event");
    fn();
    require(cudaEventRecord(end), "event");
    require(cudaEventSynchronize(end), "event");
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin, end), "event");
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return times[times.size() / 2];
}

template <int D>
void time_parts(const ForwardRun& run) {
  const kda::ForwardPlan<D> plan(run.args);
  const double tables = median_ms([&] { require(plan.tables(0), "tables"); }, 11);
  const double prepare = median_ms([&] { require(plan.prepare(0), "prepare"); }, 11);
  double transfer = 0;
  if (plan.has_segments()) {
    transfer = median_ms([&] { require(plan.transfer(0), "transfer"); }, 11);
  }
  const double walk = median_ms([&] { require(plan.walk(0), "walk"); }, 11);
  std::printf("   tables %.3f prepare %.3f transfer %.3f walk %.3f", tables, prepare, transfer, walk);
}

void time_forward(const char* name, const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind,
                  kda::Products products, int64_t segment_chunks = 0, bool training = false) {
  const Problem p(lengths, heads, dim, kind);
  const ForwardRun run(p, products, segment_chunks, training);
  const double ms = median_ms(run, 21);
  const double token_heads = static_cast<double>(p.sizes.tokens * heads);
  std::printf("%-16s H %3d %-9s%-6s%-9s %8.3f ms  %6.3f ns/token-head", name, static_cast<int>(heads),
              kKindNames[static_cast<int>(kind)], products == kda::Products::Warp ? "mma " : "wgmma ", training ? "training" : "",
              ms, 1e6 * ms / token_heads);
  if (dim == 128) {
    time_parts<128>(run);
  }
  std::printf("\n");
  std::fflush(stdout);
}

template <int D>
void time_backward_parts(const BackwardRun& run) {
  const kda::BackwardPlan<D> plan(run.args);
  const double prepare = median_ms([&] { require(plan.prepare(0), "prepare"); }, 5);
  const double transfer = plan.has_segments() ? median_ms([&] { require(plan.transfer(0), "transfer"); }, 5) : 0;
  const double walk = median_ms([&] { require(plan.walk(0), "walk"); }, 5);
  const double gradients = median_ms([&] { require(plan.gradients(0), "gradients"); }, 5);
  std::printf("   prepare %.3f transfer %.3f walk %.3f gradients %.3f", prepare, transfer, walk, gradients);
}

void time_both(const char* name, const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind) {
  const Problem p(lengths, heads, dim, kind);
  const Arriving arriving(p);
  const ForwardRun forward(p, kda::Products::Warpgroup, 0, true);
  const BackwardRun backward(p, arriving, forward, kda::Products::Warpgroup);
  const double forward_ms = median_ms(forward, 11);
  const double ms = median_ms(backward, 11);
  const double token_heads = static_cast<double>(p.sizes.tokens * heads);
  std::printf("%-16s H %3d %-9s forward saving %8.3f ms backward %8.3f ms both %8.3f ms %6.3f ns/token-head", name,
              static_cast<int>(heads), kKindNames[static_cast<int>(kind)], forward_ms, ms, forward_ms + ms,
              1e6 * (forward_ms + ms) / token_heads);
  if (dim == 128) {
    time_backward_parts<128>(backward);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void check_backward_all() {
  for (const int64_t dim : {64, 128}) {
    check_backward("ragged 150", {150}, 2, dim, Kind::Usual);
    check_backward("packed", {17, 64, 1, 65, 300, 0, 127}, 3, dim, Kind::Usual);
    check_backward("segments", {1000, 77}, 2, dim, Kind::NoDecay, 2);
    for (const Kind kind : {Kind::Saturated, Kind::NoDecay, Kind::ParallelKeys}) {
      check_backward("1000 tokens", {1000}, 4, dim, kind);
    }
    check_backward("small", {500}, 2, dim, Kind::Saturated, 0, 1e-8F);
  }
  check_backward("segments", {2000, 77}, 2, 128, Kind::Usual, 4);
}

void time_both_all() {
  time_both("8192", {8192}, 96, 128, Kind::Usual);
  time_both("8192", {8192}, 16, 128, Kind::Usual);
  time_both("65536", {65536}, 32, 128, Kind::Usual);
  time_both("1048576", {1048576}, 8, 128, Kind::Usual);
  time_both("packed 6", {1300, 547, 2048, 963, 271, 3063}, 96, 128, Kind::Usual);
}

void check_all() {
  for (const int64_t dim : {64, 128}) {
    check_forward("ragged 150", {150}, 2, dim, Kind::Usual);
    check_forward("packed", {17, 64, 1, 65, 300, 0, 127}, 3, dim, Kind::Usual);
    check_forward("segments", {1000, 77}, 2, dim, Kind::NoDecay, 2);
    for (const Kind kind : {Kind::Saturated, Kind::NoDecay, Kind::ParallelKeys, Kind::Raw}) {
      check_forward("1000 tokens", {1000}, 4, dim, kind);
    }
    check_bits(dim);
  }
  check_forward("8192 x 96", {8192}, 96, 128, Kind::Usual);
  check_forward("70000 x 4, segments", {70000}, 4, 128, Kind::Raw);
}

// What the length of segments does.
void time_segments() {
  const auto wgmma = kda::Products::Warpgroup;
  for (const int64_t chunks : {0, 8, 16, 32}) {
    std::printf("segments of %d: ", static_cast<int>(chunks));
    time_forward("8192", {8192}, 16, 128, Kind::Raw, wgmma, chunks);
    std::printf("segments of %d: ", static_cast<int>(chunks));
    time_forward("8192", {8192}, 16, 128, Kind::NoDecay, wgmma, chunks);
  }
  for (const int64_t chunks : {0, 64, 256}) {
    std::printf("segments of %d: ", static_cast<int>(chunks));
    time_forward("65536", {65536}, 32, 128, Kind::Raw, wgmma, chunks);
    std::printf("segments of %d: ", static_cast<int>(chunks));
    time_forward("65536", {65536}, 32, 128, Kind::NoDecay, wgmma, chunks);
  }
}

void time_all() {
  const auto wgmma = kda::Products::Warpgroup;
  time_forward("8192", {8192}, 96, 128, Kind::Usual, wgmma);
  time_forward("8192", {8192}, 96, 128, Kind::Usual, wgmma, 0, true);
  time_forward("8192", {8192}, 96, 128, Kind::Raw, wgmma);
  time_forward("8192", {8192}, 64, 128, Kind::Usual, wgmma);
  time_forward("8192", {8192}, 16, 128, Kind::Usual, wgmma);
  time_forward("65536", {65536}, 32, 128, Kind::Usual, wgmma);
  time_forward("1048576", {1048576}, 8, 128, Kind::Usual, wgmma);
  time_forward("packed 6", {1300, 547, 2048, 963, 271, 3063}, 96, 128, Kind::Usual, wgmma);
  time_forward("8192", {8192}, 64, 128, Kind::Raw, wgmma);
  time_forward("8192", {8192}, 16, 128, Kind::Raw, wgmma);
  time_forward("65536", {65536}, 32, 128, Kind::Raw, wgmma);
  time_forward("262144", {262144}, 16, 128, Kind::Raw, wgmma);
  time_forward("1048576", {1048576}, 8, 128, Kind::Raw, wgmma);
  time_forward("262144", {262144}, 16, 128, Kind::NoDecay, wgmma);
  time_forward("packed 6", {1300, 547, 2048, 963, 271, 3063}, 96, 128, Kind::Raw, wgmma);
  time_forward("packed 8 x 1024", std::vector<int64_t>(8, 1024), 96, 128, Kind::Raw, wgmma);
}

// Gates without a bound: checks, then times beside the bounded ones of the same run.
void unbounded_all() {
  for (const int64_t dim : {64, 128}) {
    for (const Kind kind : {Kind::Softplus, Kind::UsualPairwise, Kind::Mixed}) {
      check_forward("1000 tokens", {1000}, 4, dim, kind);
      check_backward("1000 tokens", {1000}, 4, dim, kind);
    }
    check_forward("packed", {17, 64, 1, 65, 300, 0, 127}, 3, dim, Kind::Softplus);
    check_backward("packed", {17, 64, 1, 65, 300, 0, 127}, 3, dim, Kind::Softplus);
    check_backward("segments", {1000, 77}, 2, dim, Kind::Mixed, 2);
    check_backward("small", {500}, 2, dim, Kind::Softplus, 0, 1e-8F);
  }
  for (const Kind kind : {Kind::Usual, Kind::UsualPairwise, Kind::Softplus}) {
    time_forward("8192", {8192}, 96, 128, kind, kda::Products::Warpgroup);
    time_both("8192", {8192}, 96, 128, kind);
  }
  for (const Kind kind : {Kind::Usual, Kind::Softplus}) {
    time_both("8192", {8192}, 16, 128, kind);
    time_both("65536", {65536}, 32, 128, kind);
    time_both("packed 6", {1300, 547, 2048, 963, 271, 3063}, 96, 128, kind);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check") {
    check_all();
    std::printf(all_right ? "all right\n" : "SOMETHING IS WRONG\n");
    return all_right ? 0 : 1;
  }
  if (mode == "small") {
    check_forward("packed", {17, 64, 1, 65, 0, 127}, 1, 128, Kind::Usual);
    check_forward("segments", {300, 77}, 1, 128, Kind::Raw, 2);
    check_backward("packed", {17, 64, 1, 65, 0, 127}, 1, 128, Kind::Usual);
    check_backward("segments", {300, 77}, 1, 64, Kind::Usual, 2);
    check_backward("small", {100}, 1, 128, Kind::Usual, 0, 1e-8F);
    check_backward("packed", {17, 64, 1, 65, 0, 127}, 1, 128, Kind::Mixed);
    check_backward("segments", {300, 77}, 1, 64, Kind::Softplus, 2);
    return all_right ? 0 : 1;
  }
  if (mode == "time") {
    time_all();
    return 0;
  }
  if (mode == "segments") {
    time_segments();
    return 0;
  }
  if (mode == "backward") {
    check_backward_all();
    time_both_all();
    std::printf(all_right ? "all right\n" : "SOMETHING IS WRONG\n");
    return all_right ? 0 : 1;
  }
  if (mode == "unbounded") {
    unbounded_all();
    std::printf(all_right ? "all right\n" : "SOMETHING IS WRONG\n");
    return all_right ? 0 : 1;
  }
  if (mode == "profile-unbounded") {
    const Problem p({4096}, 96, 128, Kind::Softplus);
    const ForwardRun forward(p, kda::Products::Warpgroup, 0, true);
    forward();
    const Arriving arriving(p);
    const BackwardRun back(p, arriving, forward, kda::Products::Warpgroup);
    back();
    require(cudaDeviceSynchronize(), "profile");
    return 0;
  }
  const Problem p({4096}, 96, 128, Kind::Raw);
  const Problem given({4096}, 96, 128, Kind::Usual);
  const ForwardRun run(p, kda::Products::Warpgroup);
  run();
  const ForwardRun saving(given, kda::Products::Warpgroup, 0, true);
  saving();
  const Arriving arriving(given);
  const BackwardRun back(given, arriving, saving, kda::Products::Warpgroup);
  back();
  require(cudaDeviceSynchronize(), "profile");
  return 0;
}
