// Helpers for the tests that hold an operation on the GPU against its definition on the CPU. Each tensor exists twice with the
// same values: on the host in f32 (weight gradients in f64), on the GPU in the compute type. An operation runs once on the
// CPU and twice on the GPU from the same start; both GPU runs must agree to the last bit, and each output with the CPU within
// a bound. Outputs start as NaN, so that an element that is not written shows.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "device/exec_context.h"
#include "device/gpus.h"
#include "kernels/op_test.h"
#include "tensor/host_copy.h"

namespace longhaul::testing {

inline constexpr Device kGpu{DeviceKind::Cuda, 0};

// One tensor on both sides.
struct Twin {
  std::string name;
  Tensor host;
  Tensor start;  // what the GPU's copy began as, on the host
  Tensor gpu;
  TensorView host_view, gpu_view;  // of the above; columns of them where sliced
};

class Parity {
 public:
  // `compute` is F32 or BF16. Skips the test where there is no GPU.
  Parity(std::string op, DType compute) : op_(std::move(op)), compute_(compute), cpu_(ExecContext::cpu()), gpu_(make_gpu()) {}

  // Normal values, rounded to the compute type on both sides.
  Twin& random(const std::string& name, const Shape& shape, double stddev = 1, double mean = 0) {
    return make(name, shape, compute_, DType::F32, stddev, mean);
  }
  // The same in f32 on both sides.
  Twin& random_accurate(const std::string& name, const Shape& shape, double stddev = 1, double mean = 0) {
    return make(name, shape, DType::F32, DType::F32, stddev, mean);
  }
  // An output in the compute type, or in f32.
  Twin& output(const std::string& name, const Shape& shape) { return make(name, shape, compute_, DType::F32, NAN, 0); }
  Twin& output_accurate(const std::string& name, const Shape& shape) { return make(name, shape, DType::F32, DType::F32, NAN, 0); }
  // A weight gradient that already holds something: f64 on the CPU, f32 on the GPU.
  Twin& gradient(const std::string& name, const Shape& shape) { return make(name, shape, DType::F32, DType::F64, 0.5, 0); }
  template <class T>
  Twin& integers(const std::string& name, const std::vector<T>& values, const Shape& shape) {
    return add(name, Tensor::from(values, shape), Tensor::from(values, shape));
  }
  // The last dimension becomes columns [left, left + size) of a wider tensor, whose other columns are NaN.
  static void narrow_to(Twin& twin, int64_t left, int64_t size) {
    twin.host_view = twin.host.view().slice(-1, left, left + size);
    twin.gpu_view = twin.gpu.view().slice(-1, left, left + size);
  }

  // run(ctx, side) calls the operation with side(twin) for each argument.
  using Side = std::function<TensorView(const Twin&)>;
  void run(const std::function<void(ExecContext&, const Side&)>& run) {
    run(cpu_, [](const Twin& twin) { return twin.host_view; });
    run_on_gpu(run);
    std::vector<Tensor> first;
    for (const Twin& twin : twins_) {
      first.push_back(copy_to(twin.gpu, Device{}));
      copy_between(twin.start, twin.gpu);
    }
    run_on_gpu(run);
    for (size_t i = 0; i < first.size(); ++i) {
      INFO(op_ << ": " << twins_[i].name << " differs between two runs");
      CHECK(bitwise_equal(copy_to(twins_[i].gpu, Device{}), first[i]));
    }
  }

  // The relative L2 difference of the GPU's result is within `f32` or `bf16`, whichever the compute type is.
  void check(const Twin& twin, double f32, double bf16) const {
    const Tensor got = copy_to(twin.gpu, Device{});
    const Difference diff = difference(got, twin.host);
    fmt::print("parity {:<22} {:<14} {:<5} {:.2e}\n", op_, twin.name, to_string(compute_), diff.relative_l2);
    INFO(op_ << ": " << twin.name << " in " << to_string(compute_) << ": " << diff.text);
    CHECK(diff.within(compute_ == DType::BF16 ? bf16 : f32));
  }
  // To the last bit, for integers and copies.
  void check_equal(const Twin& twin) const {
    const Tensor got = copy_to(twin.gpu, Device{});
    const Difference diff = difference(got, twin.host);
    fmt::print("parity {:<22} {:<14} {:<5} {}\n", op_, twin.name, to_string(compute_), diff.max_abs == 0 && diff.same_nans ? "equal" : "DIFFERENT");
    INFO(op_ << ": " << twin.name << ": " << diff.text);
    CHECK(diff.same_nans);
    CHECK(diff.max_abs == 0);
  }

 private:
  static ExecContext make_gpu() {
    if (find_gpus().empty()) {
      SKIP("no GPU");
    }
    return ExecContext::cuda(kGpu);
  }

  void run_on_gpu(const std::function<void(ExecContext&, const Side&)>& run) {
    run(gpu_, [](const Twin& twin) { return twin.gpu_view; });
    gpu_.cuda_context().stream().synchronize();
  }

  Twin& make(const std::string& name, const Shape& shape, DType on_gpu, DType on_host, double stddev, double mean) {
    const Tensor start = std::isnan(stddev) ? Tensor(on_gpu, shape) : random_tensor(on_gpu, shape, op_ + "/" + name, stddev, mean);
    Tensor host(on_host, shape);
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (std::isnan(stddev)) {
        set(start, at, stddev);
      }
      const float value = on_gpu == DType::BF16 ? static_cast<float>(start.values<BFloat16>()[at]) : start.values<float>()[at];
      set(host, at, static_cast<double>(value));
    }
    return add(name, std::move(host), copy_to(start, Device{}));
  }
  static void set(const Tensor& tensor, size_t at, double value) {
    switch (tensor.view().dtype()) {
      case DType::F64: tensor.values<double>()[at] = value; return;
      case DType::BF16: tensor.values<BFloat16>()[at] = BFloat16(static_cast<float>(value)); return;
      default: tensor.values<float>()[at] = static_cast<float>(value); return;
    }
  }
  Twin& add(const std::string& name, Tensor host, Tensor start) {
    Tensor gpu = copy_to(start, kGpu);
    const TensorView host_view = host, gpu_view = gpu;
    return twins_.emplace_back(Twin{name, std::move(host), std::move(start), std::move(gpu), host_view, gpu_view});
  }

  std::string op_;
  DType compute_;
  ExecContext cpu_, gpu_;
  std::deque<Twin> twins_;  // addresses stay
};

// The types that every operation supports on the GPU.
inline constexpr DType kGpuTypes[] = {DType::F32, DType::BF16};

// Bounds on the relative L2 difference: fp32 against the CPU's float; bf16 where a result is rounded to bf16 once.
inline constexpr double kFloatBound = 1e-5;
inline constexpr double kRoundedBound = 3e-3;

}  // namespace longhaul::testing
