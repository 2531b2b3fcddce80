// See measure.h.
#include "tools/bench/measure.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/profile.h"
#include "device/blas.h"

namespace longhaul::bench {
namespace {

constexpr int64_t kMostRepeats = 1000;
constexpr int64_t kProductSize = 768;
constexpr int64_t kCopyBytes = int64_t{96} << 20;

double seconds_of(const std::function<void()>& work) {
  const double start = thread_seconds();
  work();
  return thread_seconds() - start;
}

template <class T>
double flops_of_product(double seconds) {
  const auto n = static_cast<size_t>(kProductSize);
  const std::vector<T> a(n * n, T(0.5)), b(n * n, T(0.25));
  std::vector<T> c(n * n, T(0));
  const Timing timing = measure(
      [&] {
        blas::gemm(blas::Transpose::No, blas::Transpose::No, kProductSize, kProductSize, kProductSize, T(1), a.data(), kProductSize, b.data(),
                   kProductSize, T(0), c.data(), kProductSize);
      },
      seconds);
  const auto size = static_cast<double>(kProductSize);
  return 2 * size * size * size / timing.best_seconds;
}

double bytes_of_copy(double seconds) {
  const std::vector<char> from(static_cast<size_t>(kCopyBytes), 1);
  std::vector<char> to(static_cast<size_t>(kCopyBytes), 2);
  const Timing timing = measure([&] { std::memcpy(to.data(), from.data(), from.size()); }, seconds);
  return 2 * static_cast<double>(kCopyBytes) / timing.best_seconds;
}

}  // namespace

Timing measure(const std::function<void()>& work, double seconds) {
  work();
  std::vector<double> times = {seconds_of(work)};
  double total = times[0];
  while (std::ssize(times) < kMostRepeats && times[0] <= seconds && (total < seconds || times.size() < 3)) {
    times.push_back(seconds_of(work));
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  return {.median_seconds = times.size() % 2 == 1 ? times[middle] : 0.5 * (times[middle - 1] + times[middle]),
          .best_seconds = times.front(),
          .repeats = std::ssize(times)};
}

Ceiling measure_ceiling(DType dtype, double seconds) {
  return {.flops = dtype == DType::F64 ? flops_of_product<double>(seconds) : flops_of_product<float>(seconds), .bytes = bytes_of_copy(seconds)};
}

Bound bound_of(double flops, double bytes, const Ceiling& ceiling) {
  const double compute = flops / ceiling.flops;
  const double memory = bytes / ceiling.bytes;
  return {.seconds = std::max(compute, memory), .is_compute = compute >= memory};
}

}  // namespace longhaul::bench
