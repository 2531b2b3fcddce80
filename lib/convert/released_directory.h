// A directory in the form that other programs release models in: config.json and model.safetensors, or shards with
// model.safetensors.index.json. Opening it reads headers only. A pair of MXFP4 codes and scales appears as one tensor of
// numbers. Everything that contradicts itself is collected in `problems`, because a user wants to hear of all at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "model/options.h"
#include "storage/safetensors.h"

namespace longhaul {

inline constexpr std::string_view kReleasedConfig = "config.json";
inline constexpr std::string_view kReleasedSingle = "model.safetensors";
inline constexpr std::string_view kReleasedIndex = "model.safetensors.index.json";
inline constexpr std::string_view kMxfp4 = "MXFP4";

struct ReleasedTensor {
  std::string name;            // of a pair NAME_packed, NAME_scale: NAME
  std::vector<int64_t> shape;  // of the values
  std::string dtype;           // "BF16", "F32", …; "MXFP4" for a pair
  std::string file;
  const SafetensorsEntry* data = nullptr;   // of a pair: two codes a byte, [..., columns / 2]
  const SafetensorsEntry* scale = nullptr;  // of a pair: [..., columns / 32]

  [[nodiscard]] int64_t numel() const noexcept;
  [[nodiscard]] int64_t bytes() const noexcept;  // in the file
  // Can `read` give its values as numbers of the weights?
  [[nodiscard]] bool is_real() const noexcept;
  // Elements from `first` on, row-major. T is float (F64 is rounded) or double. ConversionError when a value is MXFP4 and
  // not finite.
  template <class T>
  void read(int64_t first, std::span<T> out) const;
};

class ReleasedDirectory {
 public:
  // ConversionError when config.json or a file is missing or damaged.
  explicit ReleasedDirectory(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& config_text() const noexcept { return config_text_; }
  [[nodiscard]] int64_t num_files() const noexcept { return static_cast<int64_t>(files_.size()); }
  // Sorted by name.
  [[nodiscard]] const std::vector<ReleasedTensor>& tensors() const noexcept { return tensors_; }
  // A tensor twice, an index that does not agree with the files, half of a pair.
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  struct Located {
    std::string name;
    std::string file;
    const SafetensorsEntry* entry;
  };

  void open_files();
  void compare_with_index(const std::vector<Located>& all);
  void join_pairs(std::vector<Located> all);

  std::filesystem::path path_;
  std::string config_text_;
  ModelOptions options_;
  std::list<SafetensorsFile> files_;  // entries are pointed at
  std::vector<ReleasedTensor> tensors_;
  std::vector<std::string> problems_;
};

// A list for an error message, cut after some entries.
[[nodiscard]] std::string listed(std::span<const std::string> lines);

}  // namespace longhaul
