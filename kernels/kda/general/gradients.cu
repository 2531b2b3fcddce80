// The gradients of the group's chunks; see chunk_gradients.cuh.
#include "kernels/kda/general/chunk_gradients.cuh"
#include "kernels/kda/general/score_gradients.cuh"

namespace longhaul::cuda::kda_general {
namespace {

template <class T, KdaTiles kTiles>
__global__ void __launch_bounds__(kThreads, 2) gradients_kernel(Gradients<T> p) {
  extern __shared__ float4 shared[];
  if (p.grid.group_begin + blockIdx.x >= p.grid.num_chunks()) {
    return;
  }
  float* panels = reinterpret_cast<float*>(shared);
  ChunkGradients<T, kTiles>(p, panels, *reinterpret_cast<GradientSmall*>(panels + kPanels * kPanel)).run();
}

}  // namespace

template <class T>
void make_gradients(ExecContext& ctx, const Grid& grid, const KdaBackward& op, const KdaScratch& scratch) {
  const Gradients<T> p{.grid = grid, .in = inputs_of<T>(op), .d_o = gpu::typed<T>(op.d_o), .chunk_states = op.chunk_states.data<float>(),
                       .residuals = scratch.residuals.data<float>(), .d_residuals = scratch.d_residuals.data<float>(),
                       .d_states = scratch.d_states.data<float>(), .dq = op.dq.data<float>(), .dk = op.dk.data<float>(),
                       .dv = op.dv.data<float>(), .dg = op.dg.data<float>(), .dbeta = op.dbeta.data<float>()};
  const auto launch = [&](auto* kernel) {
    gpu::allow_shared(kernel, kSharedBytes);
    const dim3 blocks(static_cast<unsigned>(grid.group_chunks), static_cast<unsigned>(grid.heads));
    kernel<<<blocks, kThreads, static_cast<size_t>(kSharedBytes), gpu::stream_of(ctx)>>>(p);
    LH_CHECK_LAUNCH(ctx, "kda gradients");
  };
  if (op.tiles == KdaTiles::Dense) {
    launch(gradients_kernel<T, KdaTiles::Dense>);
  } else {
    launch(gradients_kernel<T, KdaTiles::Pairwise>);
  }
}

template void make_gradients<float>(ExecContext&, const Grid&, const KdaBackward&, const KdaScratch&);
template void make_gradients<BF16>(ExecContext&, const Grid&, const KdaBackward&, const KdaScratch&);

}  // namespace longhaul::cuda::kda_general
