// Where a GPU's time goes while any CUDA program runs: a library that CUDA loads by itself,
//
//   CUDA_INJECTION64_PATH=libgpu_trace.so GPU_TRACE_SKIP_SECONDS=5 train --recipe …
//
// records every kernel and copy, and when the program ends prints their times by name and the share of the time between the
// first and the last in which the GPU was busy, and between what it was idle. The environment is read here because the traced program knows nothing of it:
//   GPU_TRACE_SKIP_SECONDS  what starts in the first seconds is left out (loading, first use of libraries)
//   GPU_TRACE_SECONDS       what starts later than this after the skipped ones is left out (saving)
//   GPU_TRACE_OUTPUT        a file instead of standard error; %p in it becomes the process number, for several ranks
#include <cupti.h>
#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kShownKernels = 40, kShownGaps = 12;

struct Span {
  uint64_t begin, end;      // nanoseconds
  const std::string* name;  // a key of Trace::kinds
};

struct Kind {
  uint64_t calls = 0;
  uint64_t nanoseconds = 0;
};

// One process, one trace. CUPTI calls back from threads of its own.
struct Trace {
  std::mutex mutex;
  std::map<std::string, Kind> kinds;
  std::vector<Span> spans;
  std::vector<Span> work;  // those of `spans` that are not NCCL's
  uint64_t first_kept = 0, last_kept = UINT64_MAX;

  void add(const std::string& name, uint64_t begin, uint64_t end) {
    const std::scoped_lock lock(mutex);
    if (begin < first_kept || begin > last_kept) {
      return;
    }
    const auto entry = kinds.try_emplace(name).first;
    ++entry->second.calls;
    entry->second.nanoseconds += end - begin;
    spans.push_back({begin, end, &entry->first});
    if (!name.starts_with("nccl")) {
      work.push_back(spans.back());
    }
  }
};

Trace& trace() {
  static Trace* const instance = new Trace;  // outlives every other static: used in an atexit handler
  return *instance;
}

void erase_all(std::string& text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
    text.erase(at, part.size());
  }
}

// Names without parameters and without what all of ours have in common.
std::string short_name(const char* mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  if (name.starts_with("void ")) {
    name.erase(0, 5);
  }
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "longhaul::");
  return name.substr(0, std::min(name.find('('), size_t{110}));
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "[copy to the GPU]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "[copy to the host]";
    default: return "[copy on the GPU]";
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = kBufferBytes;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      trace().add(short_name(kernel->name), kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      trace().add(copy_name(copy->copyKind), copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      trace().add("[memset]", set->start, set->end);
    }
  }
  std::free(buffer);
}

// Nanoseconds covered by at least one span.
uint64_t covered(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  uint64_t total = 0, reached = 0;
  for (const Span& span : spans) {
    const uint64_t begin = std::max(span.begin, reached);
    if (span.end > begin) {
      total += span.end - begin;
      reached = span.end;
    }
  }
  return total;
}

// Between what the GPU stood idle, the longest sums first: where a program waits for its host.
void print_idle(std::FILE* out, std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::map<std::pair<std::string, std::string>, Kind> gaps;
  const Span* last = nullptr;
  for (const Span& span : spans) {
    if (last != nullptr && span.begin > last->end) {
      Kind& gap = gaps[{*last->name, *span.name}];
      ++gap.calls;
      gap.nanoseconds += span.begin - last->end;
    }
    if (last == nullptr || span.end > last->end) {
      last = &span;
    }
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Kind>> rows(gaps.begin(), gaps.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
  std::fprintf(out, "idle between\n%10s %9s %10s  %s\n", "ms", "times", "us each", "names");
  for (size_t i = 0; i < std::min(rows.size(), kShownGaps); ++i) {
    const auto& [names, gap] = rows[i];
    std::fprintf(out, "%10.2f %9llu %10.1f  %s -> %s\n", static_cast<double>(gap.nanoseconds) * 1e-6, static_cast<unsigned long long>(gap.calls),
                 static_cast<double>(gap.nanoseconds) * 1e-3 / static_cast<double>(gap.calls), names.first.c_str(), names.second.c_str());
  }
}

// Empty for standard error.
std::string output_path() {
  const char* const wanted = std::getenv("GPU_TRACE_OUTPUT");
  std::string path = wanted != nullptr ? wanted : "";
  if (const size_t at = path.find("%p"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(getpid()));
  }
  return path;
}

void report() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::scoped_lock lock(trace().mutex);
  if (trace().spans.empty()) {
    return;
  }
  const std::string path = output_path();
  std::FILE* const out = path.empty() ? stderr : std::fopen(path.c_str(), "w");
  if (out == nullptr) {
    std::fprintf(stderr, "gpu_trace: cannot write %s\n", path.c_str());
    return;
  }
  uint64_t begin = UINT64_MAX, end = 0, total = 0;
  for (const Span& span : trace().spans) {
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  std::vector<std::pair<std::string, Kind>> rows(trace().kinds.begin(), trace().kinds.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
  for (const auto& [name, kind] : rows) {
    total += kind.nanoseconds;
  }
  const double wall = static_cast<double>(end - begin) * 1e-6;
  const auto busy = static_cast<double>(covered(trace().spans)), working = static_cast<double>(covered(trace().work));
  std::fprintf(out, "GPU busy %.1f %% of %.1f ms; %zu kernels and copies\n", 1e-4 * busy / wall, wall, trace().spans.size());
  if (trace().work.size() != trace().spans.size()) {
    std::fprintf(out, "communication exposed %.1f %% of the time: NCCL's kernels ran and nothing else did\n", 1e-4 * (busy - working) / wall);
  }
  std::fprintf(out, "%10s %7s %9s %10s  %s\n", "ms", "share", "calls", "us each", "name");
  for (size_t i = 0; i < std::min(rows.size(), kShownKernels); ++i) {
    const Kind& kind = rows[i].second;
    std::fprintf(out, "%10.2f %6.2f%% %9llu %10.1f  %s\n", static_cast<double>(kind.nanoseconds) * 1e-6,
                 100.0 * static_cast<double>(kind.nanoseconds) / static_cast<double>(total), static_cast<unsigned long long>(kind.calls),
                 static_cast<double>(kind.nanoseconds) * 1e-3 / static_cast<double>(kind.calls), rows[i].first.c_str());
  }
  print_idle(out, trace().spans);
  if (!path.empty()) {
    std::fclose(out);
  }
}

}  // namespace

// CUDA calls this when it is initialised in a process that has the library in CUDA_INJECTION64_PATH.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* const skip = std::getenv("GPU_TRACE_SKIP_SECONDS");
  uint64_t now = 0;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiGetTimestamp(&now);
  const char* const seconds = std::getenv("GPU_TRACE_SECONDS");
  trace().first_kept = now + static_cast<uint64_t>(1e9 * (skip != nullptr ? std::atof(skip) : 0.0));
  if (seconds != nullptr) {
    trace().last_kept = trace().first_kept + static_cast<uint64_t>(1e9 * std::atof(seconds));
  }
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  std::atexit(report);
  return 1;
}
