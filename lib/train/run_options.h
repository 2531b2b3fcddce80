// The recipe's sections that belong to the launcher itself: run, validation, precision, runtime.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul {

struct RunOptions {
  std::string name = "run";
  std::string dir;  // empty: runs/<name>
  int64_t seed = 1234;

  [[nodiscard]] std::string directory() const { return dir.empty() ? "runs/" + name : dir; }
};

template <class V>
void describe(V& v, RunOptions& o) {
  v.field("name", o.name, "name of the run");
  v.field("dir", o.dir, "run directory; runs/<name> when empty");
  v.field("seed", o.seed, "seed of initial weights and of the data order").non_negative();
}

struct ValidationOptions {
  int64_t every_steps = 0;  // 0: only at the end of each stage, when there is validation data
  int64_t tokens = 65536;
};

template <class V>
void describe(V& v, ValidationOptions& o) {
  v.field("every_steps", o.every_steps, "steps between validations; 0: at the end of each stage only").non_negative();
  v.field("tokens", o.tokens, "tokens of one validation").at_least(1);
}

enum class ComputePrecision : uint8_t { BF16, FP32, FP64 };
constexpr auto enum_names(ComputePrecision) {
  return std::array<std::pair<ComputePrecision, std::string_view>, 3>{
      {{ComputePrecision::BF16, "bf16"}, {ComputePrecision::FP32, "fp32"}, {ComputePrecision::FP64, "fp64"}}};
}
enum class MasterPrecision : uint8_t { FP32, FP64 };
constexpr auto enum_names(MasterPrecision) {
  return std::array<std::pair<MasterPrecision, std::string_view>, 2>{{{MasterPrecision::FP32, "fp32"}, {MasterPrecision::FP64, "fp64"}}};
}

struct PrecisionOptions {
  ComputePrecision compute = ComputePrecision::BF16;  // the CPU computes in fp32, or in fp64 where asked for
  MasterPrecision master = MasterPrecision::FP32;
};

template <class V>
void describe(V& v, PrecisionOptions& o) {
  v.field("compute", o.compute, "type of activations and matrix products on CUDA; the CPU computes bf16 recipes in fp32");
  v.field("master", o.master, "type of master weights and optimizer state");
}

enum class Backend : uint8_t { Cpu, Cuda };
constexpr auto enum_names(Backend) {
  return std::array<std::pair<Backend, std::string_view>, 2>{{{Backend::Cpu, "cpu"}, {Backend::Cuda, "cuda"}}};
}
enum class Communicator : uint8_t { Auto, Mpi, Nccl, Staged };
constexpr auto enum_names(Communicator) {
  return std::array<std::pair<Communicator, std::string_view>, 4>{
      {{Communicator::Auto, "auto"}, {Communicator::Mpi, "mpi"}, {Communicator::Nccl, "nccl"}, {Communicator::Staged, "staged"}}};
}
enum class SignalName : uint8_t { Usr1, Usr2, Term, Hup, Int };
constexpr auto enum_names(SignalName) {
  return std::array<std::pair<SignalName, std::string_view>, 5>{{{SignalName::Usr1, "USR1"},
                                                                 {SignalName::Usr2, "USR2"},
                                                                 {SignalName::Term, "TERM"},
                                                                 {SignalName::Hup, "HUP"},
                                                                 {SignalName::Int, "INT"}}};
}

struct RuntimeOptions {
  Backend backend = Backend::Cpu;
  Communicator communicator = Communicator::Auto;
  bool deterministic = false;
  int64_t watchdog_seconds = 600;
  double max_minutes = 0;  // 0: no limit
  std::vector<SignalName> signals = {SignalName::Usr1, SignalName::Term};
};

template <class V>
void describe(V& v, RuntimeOptions& o) {
  v.field("backend", o.backend, "cpu or cuda");
  v.field("communicator", o.communicator, "auto, mpi (CPU), nccl (one rank a GPU), staged (GPU data through the host)");
  v.field("deterministic", o.deterministic, "sums over ranks in a fixed order, so that two runs of a layout agree bitwise");
  v.field("watchdog_seconds", o.watchdog_seconds, "seconds without progress after which the job ends with exit code 124; 0: never").non_negative();
  v.field("max_minutes", o.max_minutes, "wall time after which the run saves a checkpoint and exits 75; 0: no limit").non_negative();
  v.field("signals", o.signals, "signals upon which all ranks save a checkpoint and exit 75");
}

}  // namespace longhaul
