// The operations that can be measured on their own. An operation makes a case of given sizes: inputs with plausible random
// values, a piece of work to repeat, and its counts.
//
// FLOPs count a multiplication and an addition as two, by the formula written beside each case. Bytes are those of inputs
// read once and outputs written once: the least that memory must move, not what caches save or spoil.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tools/bench/shape.h"

namespace longhaul::bench {

enum class Direction : uint8_t { Forward, Backward };

class Case {
 public:
  virtual ~Case() = default;
  virtual void run() = 0;

  double flops = 0;
  double bytes = 0;
};

struct Operation {
  std::string name;
  std::string about;
  std::string letters;  // what the sizes are
  Sizes sizes;
  std::function<std::unique_ptr<Case>(const Sizes&, DType, Direction)> make;
  std::vector<Direction> directions = {Direction::Forward, Direction::Backward};
};

[[nodiscard]] std::vector<Operation> all_operations();

// One a file.
[[nodiscard]] Operation kda_operation();
[[nodiscard]] Operation kda_unbounded_operation();
[[nodiscard]] Operation kda_decode_operation();
[[nodiscard]] Operation attention_operation();
[[nodiscard]] Operation attn_res_mix_operation();
[[nodiscard]] Operation linear_operation();
[[nodiscard]] Operation moe_operation();

}  // namespace longhaul::bench
