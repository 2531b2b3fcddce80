// Reductions over MPI in rank order. Each rank combines one slice of the tensor from all ranks, (rank 0 op rank 1) op
// rank 2 …, and the slices are then gathered: the result does not depend on MPI's algorithm, on the message size or on
// where the slices are cut, and the traffic is that of a ring all-reduce. Works in blocks, so that the scratch memory is
// one block. No state.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/cast.h"
#include "comm/mpi_check.h"
#include "comm/mpi_handle.h"

namespace longhaul::detail {

inline constexpr int kReduceTag = 32766;
inline constexpr int64_t kReduceBlockBytes = int64_t{4} << 20;

struct RankRange {
  int rank;
  int size;
  // The part of n elements that rank r combines.
  [[nodiscard]] int64_t begin(int64_t n, int r) const { return n * r / size; }
  [[nodiscard]] int64_t count(int64_t n, int r) const { return begin(n, r + 1) - begin(n, r); }
};

// out[i] = combination over ranks p of what rank p has at input_for(our rank)[i], for `count` elements.
// input_for(r) points to the elements of this rank which rank r combines, count_for(r) of them. `out` may be
// input_for(rank).
template <class T, class InputFor, class CountFor, class Combine>
void combine_from_all(MPI_Comm comm, const RankRange& place, InputFor&& input_for, CountFor&& count_for, T* out,
                      Combine&& combine) {
  const int64_t count = count_for(place.rank);
  std::vector<T> parts(static_cast<size_t>(count * place.size));
  const auto part = [&](int r) { return parts.data() + count * r; };
  MpiRequests requests(comm, int64_t{1} << 30);
  for (int r = 0; r < place.size; ++r) {
    if (r != place.rank) {
      requests.irecv(part(r), count * narrow<int64_t>(sizeof(T)), r, kReduceTag);
    }
  }
  for (int r = 0; r < place.size; ++r) {
    if (r != place.rank) {
      requests.isend(input_for(r), count_for(r) * narrow<int64_t>(sizeof(T)), r, kReduceTag);
    }
  }
  std::copy_n(input_for(place.rank), count, part(place.rank));
  requests.wait();
  for (int r = 1; r < place.size; ++r) {
    for (int64_t i = 0; i < count; ++i) {
      parts[static_cast<size_t>(i)] = combine(parts[static_cast<size_t>(i)], part(r)[i]);
    }
  }
  std::copy_n(parts.data(), count, out);
}

template <class T, class Combine>
void ordered_all_reduce(MPI_Comm comm, const RankRange& place, MPI_Datatype type, T* values, int64_t n,
                        int64_t block_elements, Combine&& combine) {
  const auto ranks = static_cast<size_t>(place.size);
  std::vector<int> counts(ranks);
  std::vector<int> offsets(ranks);
  for (int64_t begin = 0; begin < n; begin += block_elements) {
    const int64_t block = std::min(block_elements, n - begin);
    T* data = values + begin;
    combine_from_all<T>(
        comm, place, [&](int r) { return data + place.begin(block, r); }, [&](int r) { return place.count(block, r); },
        data + place.begin(block, place.rank), combine);
    for (int r = 0; r < place.size; ++r) {
      counts[static_cast<size_t>(r)] = narrow<int>(place.count(block, r));
      offsets[static_cast<size_t>(r)] = narrow<int>(place.begin(block, r));
    }
    LH_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts.data(), offsets.data(), type, comm));
  }
}

template <class T, class Combine>
void ordered_reduce_scatter(MPI_Comm comm, const RankRange& place, const T* input, T* mine, int64_t n, int64_t block_elements,
                            Combine&& combine) {
  const int64_t step = std::max<int64_t>(1, block_elements / place.size);
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t block = std::min(step, n - begin);
    combine_from_all<T>(
        comm, place, [&](int r) { return input + r * n + begin; }, [&](int) { return block; }, mine + begin, combine);
  }
}

}  // namespace longhaul::detail
