// See import_model.h.
#include "convert/import_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/cast.h"
#include "checkpoint/save.h"
#include "checkpoint/together.h"
#include "convert/import_plan.h"
#include "convert/model_recipe.h"
#include "convert/passthrough.h"
#include "convert/targets.h"

namespace longhaul {

namespace {

std::string type_name(std::string_view released) {
  std::string name(released);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

Piece piece_of(const FilledTensor& filled) {
  Piece piece = whole_piece(std::string(kModelGroup) + filled.target.name, TensorView(nullptr, DType::F32, filled.target.shape));
  piece.source = [&filled](int64_t first, const TensorView& part) {
    filled.read(first, std::span(part.data<float>(), static_cast<size_t>(part.numel())));
  };
  return piece;
}

Piece piece_of(const ReleasedTensor& tensor) {
  if (tensor.name.find('/') != std::string::npos || tensor.name.find('\0') != std::string::npos || tensor.scale != nullptr) {
    throw ConversionError("{}: cannot be kept in a checkpoint", tensor.name);
  }
  const TensorSpec spec = passthrough_form(tensor).stored;
  Piece piece = whole_piece(std::string(kPassthroughGroup) + tensor.name, TensorView(nullptr, spec.dtype, spec.shape));
  piece.source = [&tensor, spec](int64_t first, const TensorView& part) {
    if (part.bytes() > 0) {
      std::memcpy(part.raw(), tensor.data->data.data() + first * size_of(spec.dtype), static_cast<size_t>(part.bytes()));
    }
  };
  return piece;
}

// The largest first, each to the rank that has least.
std::vector<Piece> share_of(std::vector<Piece> pieces, int rank, int size) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pieces[a].data.bytes() > pieces[b].data.bytes(); });
  std::vector<int64_t> load(static_cast<size_t>(size), 0);
  std::vector<int> owner(pieces.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    owner[i] = narrow<int>(least - load.begin());
    *least += pieces[i].data.bytes();
  }
  std::vector<Piece> mine;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (owner[i] == rank) {
      mine.push_back(std::move(pieces[i]));
    }
  }
  return mine;
}

// The directory and what will be made of it, opened on every rank.
struct Import {
  explicit Import(const std::filesystem::path& from) : directory(from), plan(directory) {}

  [[nodiscard]] std::vector<Piece> pieces() const {
    std::vector<Piece> all;
    for (const FilledTensor& filled : plan.tensors()) {
      all.push_back(piece_of(filled));
    }
    for (const ReleasedTensor* tensor : plan.passthrough()) {
      all.push_back(piece_of(*tensor));
    }
    return all;
  }

  [[nodiscard]] JsonDocuments documents() const {
    std::map<std::string, ReleasedForm> forms;
    for (const ReleasedTensor* tensor : plan.passthrough()) {
      if (passthrough_form(*tensor).is_bytes) {
        forms[tensor->name] = {.dtype = tensor->dtype, .shape = tensor->shape};
      }
    }
    return {{kConfigDocument, directory.config_text()}, {kPassthroughDocument, forms_to_json(forms)}};
  }

  ReleasedDirectory directory;
  ImportPlan plan;
};

ImportReport report_of(const Import& import) {
  ImportReport report{.passthrough = std::ssize(import.plan.passthrough()), .files = import.directory.num_files()};
  for (const FilledTensor& filled : import.plan.tensors()) {
    report.parameters += filled.target.name.ends_with("e_score_correction_bias") ? 0 : filled.target.shape.numel();
  }
  for (const ReleasedTensor& tensor : import.directory.tensors()) {
    report.changes.add(tensor.name, type_name(tensor.dtype), is_passthrough(tensor.name) ? type_name(tensor.dtype) : "f32");
  }
  return report;
}

}  // namespace

ImportReport import_model(HostComm& comm, const ImportRequest& request) {
  std::optional<Import> import;
  CheckpointContent content;
  run_together(comm, fmt::format("importing {}", request.from.string()), [&] {
    require_new_target(request.to);
    import.emplace(request.from);
    content.pieces = share_of(import->pieces(), comm.rank(), comm.size());
  });
  content.info = {.step = 0, .stage = "imported", .tokens = 0, .recipe = model_recipe_text(import->directory.options()), .versions = request.versions};
  content.documents = import->documents();
  ImportReport report = report_of(*import);
  report.bytes = write_checkpoint(comm, request.to, content).bytes;
  return report;
}

}  // namespace longhaul
