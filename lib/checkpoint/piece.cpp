// See piece.h.
#include "checkpoint/piece.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace longhaul {

namespace {

void visit_parts(const TensorView& view, int dim, int64_t max_bytes, std::vector<int64_t>& offset,
                 const std::function<void(const std::vector<int64_t>&, const TensorView&)>& visit) {
  if (view.bytes() <= max_bytes || dim == view.rank()) {
    visit(offset, view);
    return;
  }
  const int64_t slice_bytes = view.bytes() / view.size(dim);
  const int64_t step = std::max<int64_t>(1, max_bytes / slice_bytes);
  for (int64_t begin = 0; begin < view.size(dim); begin += step) {
    offset[static_cast<size_t>(dim)] = begin;
    visit_parts(view.slice(dim, begin, std::min(begin + step, view.size(dim))), dim + 1, max_bytes, offset, visit);
  }
  offset[static_cast<size_t>(dim)] = 0;
}

int64_t end_of(const Block& block, int dim) { return block.offset[static_cast<size_t>(dim)] + block.shape[dim]; }

std::string block_text(const Block& block) {
  return fmt::format("{} at [{}]", block.shape.to_string(), fmt::join(block.offset, ", "));
}

}  // namespace

Piece whole_piece(std::string name, const TensorView& data) {
  return {.name = std::move(name),
          .global_shape = data.shape(),
          .offset = std::vector<int64_t>(static_cast<size_t>(data.rank()), 0),
          .data = data};
}

bool intersect(const Block& a, const Block& b, Block& shared) {
  LH_CHECK(a.shape.rank() == b.shape.rank(), "blocks {} and {} have different ranks", block_text(a), block_text(b));
  shared = {};
  for (int d = 0; d < a.shape.rank(); ++d) {
    const int64_t begin = std::max(a.offset[static_cast<size_t>(d)], b.offset[static_cast<size_t>(d)]);
    const int64_t end = std::min(end_of(a, d), end_of(b, d));
    if (begin >= end) {
      return false;
    }
    shared.offset.push_back(begin);
    shared.shape.append(end - begin);
  }
  return true;
}

std::string coverage_problem(const Shape& shape, std::span<const Block> blocks) {
  int64_t covered = 0;
  for (const Block& block : blocks) {
    if (block.shape.rank() != shape.rank() || static_cast<int>(block.offset.size()) != shape.rank()) {
      return fmt::format("the piece {} has another number of dimensions than {}", block_text(block), shape.to_string());
    }
    for (int d = 0; d < shape.rank(); ++d) {
      if (block.offset[static_cast<size_t>(d)] < 0 || end_of(block, d) > shape[d]) {
        return fmt::format("the piece {} reaches outside {}", block_text(block), shape.to_string());
      }
    }
    covered += block.shape.numel();
  }
  // Disjoint blocks inside the tensor whose sizes add up to it leave no gap. Tensors are mostly cut along dimension 0, so
  // after sorting by it each block meets only those that begin before it ends.
  std::vector<const Block*> order;
  for (const Block& block : blocks) {
    order.push_back(&block);
  }
  const auto begin_of = [](const Block* block) { return block->offset.empty() ? 0 : block->offset[0]; };
  std::sort(order.begin(), order.end(), [&](const Block* a, const Block* b) { return begin_of(a) < begin_of(b); });
  Block shared;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size() && (shape.rank() == 0 || begin_of(order[j]) < end_of(*order[i], 0)); ++j) {
      if (intersect(*order[i], *order[j], shared)) {
        return fmt::format("the pieces {} and {} overlap", block_text(*order[i]), block_text(*order[j]));
      }
    }
  }
  if (covered != shape.numel()) {
    return fmt::format("the pieces hold {} of its {} elements", covered, shape.numel());
  }
  return {};
}

void for_each_part(const TensorView& view, int64_t max_bytes,
                   const std::function<void(const std::vector<int64_t>& offset, const TensorView& part)>& visit) {
  std::vector<int64_t> offset(static_cast<size_t>(view.rank()), 0);
  visit_parts(view, 0, max_bytes, offset, visit);
}

void copy_strided(const TensorView& from, const TensorView& to) {
  LH_CHECK(from.spec() == to.spec(), "{} cannot be copied to {}", from.to_string(), to.to_string());
  if (from.bytes() == 0) {
    return;
  }
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    return;
  }
  for (int64_t i = 0; i < from.size(0); ++i) {
    copy_strided(from[i], to[i]);
  }
}

}  // namespace longhaul
