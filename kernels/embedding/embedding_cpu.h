// The CPU version of embedding.h; arguments are checked by the caller.
#pragma once

#include "kernels/embedding/embedding.h"

namespace longhaul::cpu {

void embedding_forward(const EmbeddingForward& op);
void embedding_backward(const EmbeddingBackward& op);

}  // namespace longhaul::cpu
