// See operation.h.
#include "tools/bench/operation.h"

namespace longhaul::bench {

std::vector<Operation> all_operations() {
  return {kda_operation(),          kda_unbounded_operation(), kda_decode_operation(), attention_operation(),
          attn_res_mix_operation(), linear_operation(),        moe_operation()};
}

}  // namespace longhaul::bench
