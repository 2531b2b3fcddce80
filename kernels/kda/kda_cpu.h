// The CPU versions behind kda.h, instantiated for float and double. Arguments are validated by the caller.
#pragma once

#include "kernels/kda/chunk_layout.h"

namespace longhaul::kda {

template <class T>
void recurrent_forward_cpu(ExecContext& ctx, const KdaForward& op, const Dims& dims);
template <class T>
void forward_cpu(ExecContext& ctx, const KdaForward& op, const Dims& dims);
template <class T>
void backward_cpu(ExecContext& ctx, const KdaBackward& op, const Dims& dims);

}  // namespace longhaul::kda
