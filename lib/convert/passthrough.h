// Tensors that are none of this model and travel with it unread. What our checkpoints know (f64, f32, bf16, i64, i32, u8,
// at most four dimensions) is kept in type and shape; everything else as a row of bytes, with type and shape noted beside.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/released_directory.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct PassthroughForm {
  TensorSpec stored;
  bool is_bytes = false;  // `stored` is u8[bytes] and says nothing about type and shape
};
[[nodiscard]] PassthroughForm passthrough_form(const ReleasedTensor& tensor);

struct ReleasedForm {
  std::string dtype;  // as safetensors calls it
  std::vector<int64_t> shape;
};
// {name: form} as JSON text, and back. ConversionError when the text is not that.
[[nodiscard]] std::string forms_to_json(const std::map<std::string, ReleasedForm>& forms);
[[nodiscard]] std::map<std::string, ReleasedForm> forms_from_json(const std::string& text);

}  // namespace longhaul
