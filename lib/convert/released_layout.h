// Which tensors a released model directory has, with names, shapes and types, for an architecture: the layouts of Kimi K3
// (arXiv:2607.24653, `kimi_k3`, all tensors under language_model.) and of Kimi Linear (arXiv:2510.26692, `kimi_linear`).
// The names of our parameters are those names, so the layout is a list of exceptions:
//
//   experts        one tensor each, experts.{E}.w1 (gate), w3 (up), w2 (down); ours are stacked
//   A_log          Kimi K3: [heads padded with zeros to a multiple of 128], as released (96 heads in 128); Kimi Linear: [1, 1, heads, 1]
//   always f32     A_log and dt_bias; in Kimi K3 also the short convolutions, the KDA output norm and the selection bias
//
// 96 heads in 128 is the only released instance of the padding; that other numbers of heads are padded to a multiple of 128
// is our reading of it. Readers take the first `heads` values, and so does import.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/model_tensors.h"
#include "storage/safetensors_writer.h"

namespace longhaul {

enum class ReleasedFormat : uint8_t { KimiLinear, KimiK3 };
// Kimi Linear when the architecture uses nothing that came with Kimi K3, otherwise Kimi K3.
[[nodiscard]] ReleasedFormat released_format(const ModelOptions& model);

enum class ReleasedType : uint8_t { BF16, F32, Mxfp4 };
struct ReleasedTypes {
  ReleasedType weights = ReleasedType::BF16;  // BF16 or F32
  ReleasedType experts = ReleasedType::BF16;  // of the routed experts
};

struct ReleasedSpec {
  std::string name;
  std::vector<int64_t> shape;  // of the values; of MXFP4 before packing
  ReleasedType type = ReleasedType::BF16;
  std::string source;   // our name
  int64_t expert = -1;  // of a stack; -1: the whole tensor

  // What a file holds of it: one tensor, or codes and scales.
  [[nodiscard]] std::vector<SafetensorsDeclaration> declarations() const;
};

// In the order of model_tensors(). ConversionError that lists the widths when experts cannot be cut into MXFP4 groups.
[[nodiscard]] std::vector<ReleasedSpec> released_layout(const ModelOptions& model, const ReleasedTypes& types);

}  // namespace longhaul
