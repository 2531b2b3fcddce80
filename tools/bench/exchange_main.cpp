// exchange_bench: what carrying tokens to the ranks of their experts and back costs, beside one plain all-to-all of the same
// bytes. Under mpirun, one rank a GPU through NCCL, or staged through the host, or on CPU ranks.
//
// "dispatch" is what a mixture layer does forward: exchange counts, send rows, put them into expert order; "combine" is the way
// back. "plain" is one all-to-all call with equal parts of the same total. Times are the slowest rank's; bytes are those that
// a rank sends to the others.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/cast.h"
#include "base/philox.h"
#include "comm/agreement.h"
#include "comm/groups.h"
#include "comm/mpi_session.h"
#include "device/gpus.h"
#include "layers/moe/expert_exchange.h"
#include "tensor/host_copy.h"

namespace {

using namespace longhaul;

struct Flags {
  int64_t tokens = 8192, width = 512, experts = 64, top_k = 4;
  std::string backend = "cuda", communicator = "nccl";
  int rounds = 30;
  bool json = false;
};

// Returns the exit code of a run that ends here (help, bad usage), or -1.
int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{"Bandwidth of the exchange of a mixture layer beside a plain all-to-all; run under mpirun.", "exchange_bench"};
  app.add_option("--tokens", flags.tokens, "tokens of each rank")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--width", flags.width, "elements of bf16 (fp32 on the CPU) in a token's row")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--experts", flags.experts, "experts of all ranks")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--top-k", flags.top_k, "experts of a token")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--backend", flags.backend)->check(CLI::IsMember({"cuda", "cpu"}))->capture_default_str();
  app.add_option("--communicator", flags.communicator)->check(CLI::IsMember({"nccl", "staged"}))->capture_default_str();
  app.add_option("--rounds", flags.rounds, "measured calls; the median counts")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--json", flags.json, "one JSON object a line instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  return -1;
}

struct Routing {
  const char* name;
  double skew;  // popularity of expert e: (e + 1)^-skew
};

// i64 [experts + 1]: the bounds of `rows` routed rows in expert order.
std::vector<int64_t> bounds_of(const Flags& flags, const Routing& routing, int rank) {
  std::vector<double> share(static_cast<size_t>(flags.experts));
  double total = 0;
  for (size_t e = 0; e < share.size(); ++e) {
    total += share[e] = std::pow(static_cast<double>(e + 1), -routing.skew);
  }
  const RandomStream stream{.seed = static_cast<uint64_t>(rank), .stream = stream_id("routes")};
  std::vector<int64_t> bounds(share.size() + 1);
  for (int64_t row = 0; row < flags.tokens * flags.top_k; ++row) {
    double left = static_cast<double>(stream.uniform(narrow<uint64_t>(row))) * total;
    size_t expert = 0;
    while (expert + 1 < share.size() && left >= share[expert]) {
      left -= share[expert++];
    }
    ++bounds[expert + 1];
  }
  for (size_t e = 0; e < share.size(); ++e) {
    bounds[e + 1] += bounds[e];
  }
  return bounds;
}

class Bench {
 public:
  Bench(MpiSession& mpi, const Flags& flags)
      : flags_(flags), world_(mpi.world()), device_(device_of(flags, mpi.world())),
        cuda_(device_.kind == DeviceKind::Cuda ? std::make_unique<CudaContext>(device_) : nullptr),
        ctx_(device_, ExecContext::Mode::Execute, Arena(device_, "scratch", int64_t{1} << 20, Arena::Growth::Chunked), cuda_.get()),
        groups_(Groups::create(mpi.world(), grid_of(mpi.world().size()),
                               {.journal = &mpi.journal(), .data_plane = plane_of(flags), .cuda = cuda_.get()})),
        rows_(flags.tokens * flags.top_k),
        dtype_(device_.kind == DeviceKind::Cuda ? DType::BF16 : DType::F32),
        home_(zeros(rows_)),
        plain_(zeros(rows_ / world_.size() * world_.size())) {}

  void run(const Routing& routing) {
    const std::vector<int64_t> bounds = bounds_of(flags_, routing, world_.rank());
    const Tensor offsets = copy_to(Tensor::from(bounds, {flags_.experts + 1}), device_);
    const ExpertExchange exchange(groups_.expert);
    Arena keep(device_, "plan", 0, Arena::Growth::Chunked);
    const ExpertExchange::Plan plan = exchange.plan(ctx_, keep, offsets, rows_);
    const Tensor local = zeros(plan.local_rows);
    Arena again(device_, "plan", 0, Arena::Growth::Chunked);
    const double dispatch = seconds([&] {
      again.release({});  // its memory stays: nothing is allocated in a measured call
      exchange.to_experts(ctx_, exchange.plan(ctx_, again, offsets, rows_), home_, local);
    });
    const double send = seconds([&] { exchange.to_experts(ctx_, plan, home_, local); });
    const double combine = seconds([&] { exchange.to_home(ctx_, plan, local, home_); });
    const double plain = seconds([&] { plain_all_to_all(); });
    int64_t leaving = rows_ - plan.home_counts.at(static_cast<size_t>(world_.rank()));
    leaving = std::ranges::max(world_.all_gather_value(leaving));
    print(routing, {{"dispatch", dispatch}, {"rows", send}, {"combine", combine}, {"plain", plain}}, leaving);
  }

 private:
  [[nodiscard]] Tensor zeros(int64_t rows) const { return copy_to(Tensor::zeros(dtype_, {rows, flags_.width}), device_); }
  static Device device_of(const Flags& flags, HostComm& world) {
    if (flags.backend == "cpu") {
      return {};
    }
    return run_agreed(world, [&]() -> Device {
      const auto gpus = static_cast<int>(find_gpus().size());
      if (gpus == 0) {
        throw DeviceError("--backend cuda: this host has no GPU that this program can use; use --backend cpu");
      }
      return {.kind = DeviceKind::Cuda, .index = world.local_rank() % gpus};
    });
  }
  static DataPlane plane_of(const Flags& flags) {
    return flags.backend == "cpu" ? DataPlane::Mpi : flags.communicator == "nccl" ? DataPlane::Nccl : DataPlane::Staged;
  }
  static ParallelGrid grid_of(int ranks) { return ParallelGrid::create({.pipeline_cuts = {}, .data = ranks, .expert = ranks}, ranks); }

  void plain_all_to_all() {
    const int ranks = world_.size();
    const std::vector<int64_t> parts(static_cast<size_t>(ranks), rows_ / ranks);
    const TensorView sent = home_.view().slice(0, 0, rows_ / ranks * ranks);
    groups_.expert.device.all_to_all_v({.send = sent, .send_rows = parts, .recv = plain_, .recv_rows = parts});
  }

  // The median of the slowest rank's times.
  double seconds(const std::function<void()>& call) {
    std::vector<double> times;
    for (int round = -3; round < flags_.rounds; ++round) {
      wait();
      world_.barrier();
      const auto start = std::chrono::steady_clock::now();
      call();
      wait();
      const double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double slowest = std::ranges::max(world_.all_gather_value(mine));
      if (round >= 0) {
        times.push_back(slowest);
      }
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }
  void wait() {
    groups_.finish();
    if (cuda_ != nullptr) {
      cuda_->stream().synchronize();
    }
  }

  void print(const Routing& routing, const std::vector<std::pair<const char*, double>>& times, int64_t leaving) const {
    if (world_.rank() != 0) {
      return;
    }
    const auto row_bytes = static_cast<double>(flags_.width * size_of(dtype_));
    const double sent = static_cast<double>(leaving) * row_bytes;
    const double equal = static_cast<double>(rows_ / world_.size() * (world_.size() - 1)) * row_bytes;
    nlohmann::json line{{"routing", routing.name}, {"ranks", world_.size()}, {"largest_sent_bytes", sent}, {"plain_sent_bytes", equal}};
    for (const auto& [name, time] : times) {
      line[std::string(name) + "_seconds"] = time;
    }
    if (flags_.json) {
      fmt::print("{}\n", line.dump());
      return;
    }
    for (const auto& [name, time] : times) {
      const double bytes = std::string_view(name) == "plain" ? equal : sent;
      fmt::print("{:<8} {:<9} {:9.1f} us  {:8.2f} GB/s sent by a rank\n", routing.name, name, time * 1e6, bytes / time / 1e9);
    }
  }

  Flags flags_;
  HostComm& world_;
  Device device_;
  std::unique_ptr<CudaContext> cuda_;
  ExecContext ctx_;
  Groups groups_;
  int64_t rows_;
  DType dtype_;
  Tensor home_;   // [rows, width]
  Tensor plain_;  // [rows rounded down to the ranks, width]
};

int run(int argc, char** argv) {
  Flags flags;
  if (const int code = parse(argc, argv, flags); code >= 0) {
    return code;
  }
  MpiSession mpi(Env::process());
  try {
    run_agreed(mpi.world(), [&] {
      if (flags.experts % mpi.world().size() != 0 || mpi.world().size() < 2) {
        throw RecipeError("{} ranks: start at least two under mpirun, a divisor of --experts {}", mpi.world().size(), flags.experts);
      }
    });
    Bench bench(mpi, flags);
    for (const Routing& routing : {Routing{"even", 0}, Routing{"skewed", 0.5}}) {
      bench.run(routing);
    }
    return 0;
  } catch (...) {
    return mpi.fail(std::current_exception());
  }
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
