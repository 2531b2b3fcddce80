// Stands in for the CUDA versions of all operations in builds without the CUDA backend, so that callers need no #ifdef.
#include "kernels/adamw/adamw_cuda.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/attn_res_mix/attn_res_mix_cuda.h"
#include "kernels/cross_entropy/cross_entropy_cuda.h"
#include "kernels/decay_gate/decay_gate_cuda.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/gated_activation/gated_activation_cuda.h"
#include "kernels/gated_output/gated_output_cuda.h"
#include "kernels/gated_rms_norm/gated_rms_norm_cuda.h"
#include "kernels/gpu/counting_sort.h"
#include "kernels/gpu/partial_sums.h"
#include "kernels/grouped_linear/grouped_linear_cuda.h"
#include "kernels/kda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"
#include "kernels/l2_norm/l2_norm_cuda.h"
#include "kernels/linear/linear_cuda.h"
#include "kernels/mla_pack/mla_pack_cuda.h"
#include "kernels/permute/permute_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/route_histogram/route_histogram_cuda.h"
#include "kernels/router/router_cuda.h"
#include "kernels/short_conv/short_conv_cuda.h"
#include "kernels/sigmoid/sigmoid_cuda.h"
#include "kernels/no_cuda.h"

namespace longhaul::cuda {

void adamw(ExecContext&, const AdamW&) { throw_no_cuda("adamw"); }
void attention_forward(ExecContext&, const AttentionForward&, const AttentionScratch&) { throw_no_cuda("attention_forward"); }
void attention_backward(ExecContext&, const AttentionBackward&, const AttentionScratch&) { throw_no_cuda("attention_backward"); }
void attn_res_mix_forward(ExecContext&, const AttnResMixForward&) { throw_no_cuda("attn_res_mix_forward"); }
void attn_res_mix_backward(ExecContext&, const AttnResMixBackward&, const AttnResMixScratch&) { throw_no_cuda("attn_res_mix_backward"); }
void linear_cross_entropy(ExecContext&, const LinearCrossEntropy&, const CrossEntropyScratch&) { throw_no_cuda("linear_cross_entropy"); }
void decay_gate_forward(ExecContext&, const DecayGateForward&) { throw_no_cuda("decay_gate_forward"); }
void decay_gate_backward(ExecContext&, const DecayGateBackward&, const DecayGateScratch&) { throw_no_cuda("decay_gate_backward"); }
void fill(ExecContext&, const TensorView&, double) { throw_no_cuda("fill"); }
void copy(ExecContext&, const TensorView&, const TensorView&) { throw_no_cuda("copy"); }
void add(ExecContext&, const TensorView&, const TensorView&) { throw_no_cuda("add"); }
void scale(ExecContext&, const TensorView&, double) { throw_no_cuda("scale"); }
void add_sum_of_squares(ExecContext&, const TensorView&, const TensorView&, const TensorView&) { throw_no_cuda("add_sum_of_squares"); }
void fill_normal(ExecContext&, const TensorView&, RandomStream, double, double, int64_t) { throw_no_cuda("fill_normal"); }
void embedding_forward(ExecContext&, const EmbeddingForward&) { throw_no_cuda("embedding_forward"); }
void embedding_backward(ExecContext&, const EmbeddingBackward&, const EmbeddingScratch&) { throw_no_cuda("embedding_backward"); }
void gated_activation_forward(ExecContext&, const GatedActivationForward&) { throw_no_cuda("gated_activation_forward"); }
void gated_activation_backward(ExecContext&, const GatedActivationBackward&) { throw_no_cuda("gated_activation_backward"); }
void gated_output_forward(ExecContext&, const GatedOutputForward&) { throw_no_cuda("gated_output_forward"); }
void gated_output_backward(ExecContext&, const GatedOutputBackward&) { throw_no_cuda("gated_output_backward"); }
void gated_rms_norm_forward(ExecContext&, const GatedRmsNormForward&) { throw_no_cuda("gated_rms_norm_forward"); }
void gated_rms_norm_backward(ExecContext&, const GatedRmsNormBackward&, const TensorView&) { throw_no_cuda("gated_rms_norm_backward"); }
void grouped_linear_forward(ExecContext&, const GroupedLinearForward&, TensorCores) { throw_no_cuda("grouped_linear_forward"); }
void grouped_linear_backward(ExecContext&, const GroupedLinearBackward&, TensorCores) { throw_no_cuda("grouped_linear_backward"); }
void kda_forward(ExecContext&, const KdaForward&, const KdaScratch&) { throw_no_cuda("kda_forward"); }
void kda_backward(ExecContext&, const KdaBackward&, const KdaScratch&) { throw_no_cuda("kda_backward"); }
void kda_decode(ExecContext&, const KdaDecode&) { throw_no_cuda("kda_decode"); }
void make_kda_segment_inputs(ExecContext&, const TensorView&, const TensorView&) { throw_no_cuda("kda_segment"); }
void kda_hopper_forward(ExecContext&, const KdaForward&, const TensorView&) { throw_no_cuda("kda_forward"); }
void kda_hopper_backward(ExecContext&, const KdaBackward&, const TensorView&) { throw_no_cuda("kda_backward"); }
bool has_kda_hopper(Device) { return true; }
void l2_norm_forward(ExecContext&, const L2NormForward&) { throw_no_cuda("l2_norm_forward"); }
void l2_norm_backward(ExecContext&, const L2NormBackward&) { throw_no_cuda("l2_norm_backward"); }
void linear_forward(ExecContext&, const LinearForward&) { throw_no_cuda("linear_forward"); }
void linear_backward(ExecContext&, const LinearBackward&, const TensorView&) { throw_no_cuda("linear_backward"); }
void mla_pack_forward(ExecContext&, const MlaPackForward&) { throw_no_cuda("mla_pack_forward"); }
void mla_pack_backward(ExecContext&, const MlaPackBackward&) { throw_no_cuda("mla_pack_backward"); }
void plan_permutation(ExecContext&, const PlanPermutation&, const TensorView&) { throw_no_cuda("plan_permutation"); }
void permute_forward(ExecContext&, const PermuteForward&) { throw_no_cuda("permute_forward"); }
void permute_backward(ExecContext&, const PermuteBackward&) { throw_no_cuda("permute_backward"); }
void combine_forward(ExecContext&, const CombineForward&) { throw_no_cuda("combine_forward"); }
void combine_backward(ExecContext&, const CombineBackward&) { throw_no_cuda("combine_backward"); }
void rms_norm_forward(ExecContext&, const RmsNormForward&) { throw_no_cuda("rms_norm_forward"); }
void rms_norm_backward(ExecContext&, const RmsNormBackward&, const TensorView&) { throw_no_cuda("rms_norm_backward"); }
void route_histogram(ExecContext&, const RouteHistogram&) { throw_no_cuda("route_histogram"); }
void router_forward(ExecContext&, const RouterForward&) { throw_no_cuda("router_forward"); }
void router_backward(ExecContext&, const RouterBackward&) { throw_no_cuda("router_backward"); }
void short_conv_forward(ExecContext&, const ShortConvForward&) { throw_no_cuda("short_conv_forward"); }
void short_conv_backward(ExecContext&, const ShortConvBackward&, const TensorView&) { throw_no_cuda("short_conv_backward"); }
void sigmoid_forward(ExecContext&, const SigmoidForward&) { throw_no_cuda("sigmoid_forward"); }
void sigmoid_backward(ExecContext&, const SigmoidBackward&) { throw_no_cuda("sigmoid_backward"); }
void counting_sort(ExecContext&, const CountingSort&) { throw_no_cuda("counting_sort"); }
void add_partial_sums(ExecContext&, const TensorView&, const TensorView&) { throw_no_cuda("add_partial_sums"); }

}  // namespace longhaul::cuda
