// See options.h.
#include "model/options.h"

#include <algorithm>

namespace longhaul {

bool ModelOptions::is_kda(int64_t layer) const {
  const auto& kda = linear_attn_config.kda_layers;
  return std::find(kda.begin(), kda.end(), layer + 1) != kda.end();
}

}  // namespace longhaul
