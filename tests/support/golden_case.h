// One golden file (tools/golden/README.md) as arguments and results of our operations. A test asks for inputs, for
// outputs and for gradients by the names in the file; outputs start as NaN, gradients that are accumulated start from
// a constant. At the end every result is compared, and what the file holds but nobody computed is reported as well.
//
//   c.out("y")                         NaN [shape of out.y], to be compared with out.y
//   c.grad("in.x")                     NaN, to be compared with grad.in.x
//   c.grad_sum("weight.norm.weight")   f64, accumulated; what was added is compared with grad.weight.norm.weight
//
// The file's `experts.0.NAME`, `experts.1.NAME`, … are one stack `experts.NAME` here, as in our layers.
#pragma once

#include <filesystem>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "storage/safetensors.h"
#include "tensor/tensor.h"

namespace longhaul::testing {

class GoldenCase {
 public:
  // Floating point tensors are handed out in `dtype`, f64 or f32.
  GoldenCase(const std::filesystem::path& file, DType dtype);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] bool has(std::string_view name) const { return file_.find(name) != nullptr; }

  // --- options of the case ---
  [[nodiscard]] double number(const char* key) const;
  [[nodiscard]] int64_t integer(const char* key) const;
  [[nodiscard]] std::string text(const char* key) const;
  // Nothing where the file says "none".
  [[nodiscard]] std::optional<double> maybe_number(const char* key) const;

  // --- arguments: "in.x", "weight.A_log", "dy.y" ---
  [[nodiscard]] TensorView operator[](const std::string& name);
  [[nodiscard]] TensorView cu_seqlens();  // i64
  // Own values, in the case's type.
  [[nodiscard]] TensorView tensor(const std::vector<double>& values, const Shape& shape);
  // Something that an operation writes and nobody compares; NaN before.
  [[nodiscard]] TensorView temporary(const Shape& shape);
  [[nodiscard]] TensorView temporary(DType dtype, const Shape& shape);

  // --- results ---
  [[nodiscard]] TensorView out(const std::string& name);
  [[nodiscard]] TensorView grad(const std::string& name);
  [[nodiscard]] TensorView grad_sum(const std::string& name, DType dtype = DType::F64);
  // A result that exists already.
  void expect(const std::string& name, const std::vector<double>& got);
  // Results of the file that our operation does not have: all whose names start so.
  void leave_out(const std::string& prefix) { left_out_.push_back(prefix); }

  // One line for every result whose relative L2 difference is above the tolerance (integers: that differs at all), and
  // for every out. and grad. of the file that was not computed.
  [[nodiscard]] std::vector<std::string> problems(double tolerance) const;

 private:
  // A tensor of the file, or the stack of all experts.
  struct Stored {
    std::vector<double> values;
    Shape shape;
    bool is_integer = false;
    std::vector<std::string> names;
  };
  [[nodiscard]] Stored stored(const std::string& name) const;
  struct Pending {
    std::string name;
    TensorView view;
    double start = 0;
  };
  [[nodiscard]] TensorView promise(const std::string& name, DType dtype, double start);
  void compare(const std::string& name, const std::vector<double>& got, double tolerance, std::vector<std::string>& problems,
               std::set<std::string>& compared) const;

  SafetensorsFile file_;
  DType dtype_;
  std::list<Tensor> owned_;
  std::map<std::string, TensorView> arguments_;
  std::vector<Pending> pending_;
  std::map<std::string, std::vector<double>> expected_;
  std::vector<std::string> left_out_;
};

}  // namespace longhaul::testing
