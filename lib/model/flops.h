// Floating-point operations of the model, for planning pipeline cuts and for reporting TFLOP/s and MFU.
// A multiplication and an addition count as two. Formulas:
//   matrix: 2 x parameters used by the token (experts: top_k of them; the embedding look-up counts nothing)
//   KDA core, per token and head (Kimi Linear, arXiv:2510.26692, eq. 13): 6 d^2 + 3 C d + C^2, C = 64
//   MLA core, causal: (key_dim + v_dim) x 2 x (T + 1) / 2 per token and head for a document of T tokens
// Backward costs twice the forward.
#pragma once

#include <cstdint>

#include "model/options.h"

namespace longhaul {

// Parameters that a token's forward pass multiplies with in decoder layer `layer` (0-based).
[[nodiscard]] int64_t active_parameters(const ModelOptions& model, int64_t layer);
// All layers and the head, without the embedding.
[[nodiscard]] int64_t active_parameters(const ModelOptions& model);
// All parameters.
[[nodiscard]] int64_t total_parameters(const ModelOptions& model);
// Forward operations of one token of a decoder layer in a document of `document_tokens` tokens, averaged over positions.
[[nodiscard]] double forward_flops(const ModelOptions& model, int64_t layer, double document_tokens);
// Forward and backward operations of one token of the whole model.
[[nodiscard]] double training_flops_per_token(const ModelOptions& model, double document_tokens);

}  // namespace longhaul
