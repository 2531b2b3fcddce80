// See passthrough.h.
#include "convert/passthrough.h"

#include <nlohmann/json.hpp>

namespace longhaul {

PassthroughForm passthrough_form(const ReleasedTensor& tensor) {
  Shape shape;
  if (tensor.shape.size() <= Shape::kMaxRank && tensor.scale == nullptr) {
    for (const int64_t size : tensor.shape) {
      shape.append(size);
    }
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8}) {
      if (safetensors_dtype(dtype) == tensor.dtype) {
        return {.stored = {.dtype = dtype, .shape = shape}};
      }
    }
  }
  return {.stored = {.dtype = DType::U8, .shape = {tensor.bytes()}}, .is_bytes = true};
}

std::string forms_to_json(const std::map<std::string, ReleasedForm>& forms) {
  nlohmann::json root = nlohmann::json::object();
  for (const auto& [name, form] : forms) {
    root[name] = {{"dtype", form.dtype}, {"shape", form.shape}};
  }
  return root.dump();
}

std::map<std::string, ReleasedForm> forms_from_json(const std::string& text) {
  std::map<std::string, ReleasedForm> forms;
  try {
    const nlohmann::json root = nlohmann::json::parse(text);
    for (const auto& [name, form] : root.items()) {
      forms[name] = {.dtype = form.at("dtype").get<std::string>(), .shape = form.at("shape").get<std::vector<int64_t>>()};
    }
  } catch (const nlohmann::json::exception& error) {
    throw ConversionError("the list of tensors that pass through cannot be read: {}", error.what());
  }
  return forms;
}

}  // namespace longhaul
