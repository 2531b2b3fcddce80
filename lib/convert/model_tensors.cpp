// See model_tensors.h.
#include "convert/model_tensors.h"

#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "model/stage_model.h"

namespace longhaul {

std::vector<ModelTensor> model_tensors(const ModelOptions& options) {
  SelfHostComm host;
  LoopbackDeviceComm device;
  const Group alone{"alone", 0, 1, host, device};
  const StageRange all{.first_layer = 0, .last_layer = options.num_hidden_layers, .has_embedding = true, .has_head = true};
  const StageModel model(options, all, DType::F32, alone);
  StageModel::Weights<ParameterSpec> specs = model.weights();
  std::vector<ModelTensor> tensors;
  model.for_each(specs, [&](const std::string& name, const ParameterSpec& spec) {
    tensors.push_back({.name = name, .shape = spec.global_shape(), .experts = spec.num_experts});
    constexpr std::string_view kRouter = "block_sparse_moe.gate.weight";
    if (name.ends_with(kRouter)) {
      const std::string gate = name.substr(0, name.size() - std::string_view("weight").size());
      tensors.push_back({.name = gate + "e_score_correction_bias", .shape = {options.num_experts}});
    }
  });
  return tensors;
}

}  // namespace longhaul
