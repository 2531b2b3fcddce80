// Writer of the safetensors format (see safetensors.h). All tensors are declared first, because the header stands at the
// front; their bytes then stream through, so that a shard need not fit into memory. The file appears under its name only
// when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/atomic_write.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct SafetensorsDeclaration {
  std::string name;
  std::string dtype;  // "F32", …; see safetensors_dtype
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  // The data follows in the order of the declarations. `metadata` becomes __metadata__ when it is not empty; readers of
  // the transformers library want {"format": "pt"}. ConversionError for a name given twice or an unknown dtype.
  SafetensorsWriter(std::filesystem::path path, std::vector<SafetensorsDeclaration> declarations,
                    const std::map<std::string, std::string>& metadata = {});

  // The next declared tensor; `data` must have exactly the declared size.
  void write(std::string_view name, std::span<const std::byte> data);
  // The same from a contiguous CPU tensor of the declared dtype.
  void write(std::string_view name, const TensorView& tensor);
  // The same in parts, for a tensor that need not be in memory as a whole; the parts together have the declared size.
  void write_part(std::string_view name, std::span<const std::byte> part);
  // After the last tensor: gives the file its name.
  void finish();

 private:
  StagedFile file_;
  std::vector<SafetensorsDeclaration> declarations_;
  std::vector<int64_t> bytes_;  // of each declared tensor
  size_t next_ = 0;
  int64_t parts_bytes_ = 0;  // of the next tensor that were written already
};

}  // namespace longhaul
