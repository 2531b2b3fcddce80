"""Golden whole models: folders in the released layout, with what the reference computes for packed documents.

model.safetensors holds the weights in float64; reference.safetensors holds input_ids, targets, cu_seqlens, logits,
loss, routes and gradients under the names that the folders in tests/golden/reference use.
"""
import numpy as np

from case import Case, matrix, norm_weight, normal, packed, require_margin, stored
from cases import attention, kda
from cases.moe import layer_weights as moe_weights
from formulas import model
from formulas.basic import IGNORED_TARGET

ROUTE_MARGIN = 1e-4   # float32 noise of the scores is a hundred times smaller

K3_CONFIG = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "model_type": "kimi_k3",
    "torch_dtype": "float64",
    "tie_word_embeddings": False,
    "text_config": {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "vocab_size": 37,
        "hidden_size": 20,
        "intermediate_size": 28,
        "num_hidden_layers": 8,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "q_lora_rank": 10,
        "kv_lora_rank": 9,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 5,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "linear_attn_config": {"head_dim": 8, "num_heads": 2, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                               "use_full_rank_gate": True, "kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8]},
        "attn_res_block_size": 3,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "num_experts": 6,
        "num_experts_per_token": 2,
        "num_shared_experts": 2,
        "moe_intermediate_size": 7,
        "routed_expert_hidden_size": 12,
        "latent_moe_use_norm": True,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "topk_method": "noaux_tc",
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "rms_norm_eps": 1e-05,
        "num_nextn_predict_layers": 0,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    },
}

KIMI_LINEAR_CONFIG = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "dtype": "float64",
    "vocab_size": 35,
    "hidden_size": 18,
    "intermediate_size": 26,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 9,
    "q_lora_rank": None,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 7,
    "qk_rope_head_dim": 3,
    "v_head_dim": 6,
    "mla_use_nope": True,
    "linear_attn_config": {"head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 4,
                           "kda_layers": [1, 2, 3, 5], "full_attn_layers": [4, 6]},
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 6,
    "num_experts_per_token": 3,
    "num_shared_experts": 1,
    "moe_intermediate_size": 8,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "use_grouped_topk": True,
    "num_expert_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.446,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "initializer_range": 0.02,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "model_max_length": 1048576,
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "use_cache": True,
}

# Choices that the released models do not make, which their config.json allows.
BLOCK_OF_ONE_CONFIG = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "model_type": "kimi_k3",
    "text_config": {
        "model_type": "kimi_linear",
        "vocab_size": 23,
        "hidden_size": 16,
        "intermediate_size": 20,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "q_lora_rank": None,
        "kv_lora_rank": 7,
        "qk_nope_head_dim": 5,
        "qk_rope_head_dim": 3,
        "v_head_dim": 4,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "linear_attn_config": {"head_dim": 6, "num_heads": 2, "short_conv_kernel_size": 3, "gate_lower_bound": None,
                               "use_full_rank_gate": True, "kda_layers": [1, 3], "full_attn_layers": [2, 4]},
        "attn_res_block_size": 1,
        "first_k_dense_replace": 0,
        "num_experts": 5,
        "num_experts_per_token": 3,
        "num_shared_experts": 0,
        "moe_intermediate_size": 6,
        "routed_expert_hidden_size": 8,
        "latent_moe_use_norm": False,
        "routed_scaling_factor": 1.7,
        "hidden_act": "situ",
        "activation_situ_beta": 3.0,
        "activation_situ_linear_beta": 10.0,
        "rms_norm_eps": 1e-06,
    },
}

TWO_DENSE_CONFIG = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "vocab_size": 29,
    "hidden_size": 15,
    "intermediate_size": 20,
    "num_hidden_layers": 6,
    "num_attention_heads": 3,
    "q_lora_rank": 6,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 5,
    "mla_use_nope": True,
    "mla_use_output_gate": False,
    "linear_attn_config": {"head_dim": 5, "num_heads": 3, "short_conv_kernel_size": 4, "gate_lower_bound": -2.5,
                           "use_full_rank_gate": False, "kda_layers": [2, 3, 5], "full_attn_layers": [1, 4, 6]},
    "attn_res_block_size": 4,
    "first_k_dense_replace": 2,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 5,
    "routed_scaling_factor": 2.446,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
}


def residual_site(rng, hidden, prefix):
    """A residual site with a random norm and a random query, so that every gradient is exercised."""
    return {prefix + "norm.weight": norm_weight(rng, hidden), prefix + "proj.weight": normal(rng, 1, hidden, std=0.3)}


def decoder_layer_weights(rng, layer, options):
    """Random weights of one decoder layer by their names within it."""
    hidden = options["hidden_size"]
    own = {"input_layernorm.weight": norm_weight(rng, hidden), "post_attention_layernorm.weight": norm_weight(rng, hidden)}
    if options.get("attn_res_block_size"):
        own |= residual_site(rng, hidden, "self_attention_res_") | residual_site(rng, hidden, "mlp_res_")
    if layer in options["full_layers"]:
        attended = attention.layer_weights(rng, hidden, {"mla_use_output_gate": False, **options})
    else:
        linear = options["linear_attn_config"]
        full_rank = linear.get("use_full_rank_gate", False)
        attended = kda.layer_weights(rng, hidden, linear["num_heads"], linear["head_dim"], full_rank,
                                     linear["short_conv_kernel_size"])
    own |= {"self_attn." + name: value for name, value in attended.items()}
    if layer < options["first_k_dense_replace"]:
        width = options["intermediate_size"]
        shapes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
        return own | {f"mlp.{name}_proj.weight": matrix(rng, *shape) for name, shape in shapes.items()}
    routed = moe_weights(rng, hidden, options.get("routed_expert_hidden_size"), options["num_experts"],
                         options["moe_intermediate_size"], options["num_shared_experts"] * options["moe_intermediate_size"],
                         options.get("latent_moe_use_norm", True))
    routed["gate.e_score_correction_bias"] = normal(rng, options["num_experts"], std=0.1)
    return own | {"block_sparse_moe." + name: value for name, value in routed.items()}


def model_weights(rng, options):
    """Random weights of a whole model, by the released names without "language_model."."""
    hidden, vocabulary = options["hidden_size"], options["vocab_size"]
    weights = {"model.embed_tokens.weight": normal(rng, vocabulary, hidden), "model.norm.weight": norm_weight(rng, hidden),
               "lm_head.weight": matrix(rng, vocabulary, hidden)}
    if options.get("attn_res_block_size"):
        weights |= residual_site(rng, hidden, "model.output_attn_res_")
    for layer in range(options["num_hidden_layers"]):
        own = decoder_layer_weights(rng, layer, options)
        weights |= {f"model.layers.{layer}.{name}": value for name, value in own.items()}
    return weights


def packed_batch(rng, lengths, vocabulary):
    """Random ids, next-token targets within each document with a tenth of them masked, and the boundaries."""
    cu_seqlens = packed(*lengths)
    input_ids = rng.integers(0, vocabulary, int(cu_seqlens[-1])).astype(np.int32)
    targets = np.append(input_ids[1:], np.int32(IGNORED_TARGET))
    targets[cu_seqlens[1:] - 1] = IGNORED_TARGET
    targets[rng.random(len(targets)) < 0.1] = IGNORED_TARGET
    return input_ids, targets, cu_seqlens


def reference_tensors(weights, input_ids, targets, cu_seqlens, options, prefix):
    """The content of reference.safetensors."""
    loss, logits, routing, grads = model.evaluate(weights, input_ids, targets, cu_seqlens, options)
    tensors = {"input_ids": input_ids[None], "targets": targets[None], "cu_seqlens": cu_seqlens, "logits": logits[None],
               "loss": np.reshape(loss, 1)}
    for layer, (routes, ranked) in routing.items():
        require_margin(ranked, ROUTE_MARGIN)
        tensors[f"routes.{layer}"] = np.sort(routes, axis=-1)
    tensors |= {f"grad.{prefix}{name}": grad for name, grad in grads.items()}
    return {name: stored(value) for name, value in tensors.items()}


def padded_a_log(name, value, size):
    """The released K3 files pad A_log with zeros behind the last head."""
    return np.append(value, np.zeros(size - len(value))) if name.endswith("A_log") and size else value


def build(rng, config, lengths, prefix, a_log_shape, a_log_padding=0):
    options = model.read_config(config)
    weights = model_weights(rng, options)
    for name in weights:
        if name.endswith("A_log"):
            weights[name] = weights[name].reshape(a_log_shape)
    batch = packed_batch(rng, lengths, options["vocab_size"])
    reference = reference_tensors(weights, *batch, options, prefix)
    stored_weights = {prefix + name: padded_a_log(name, value, a_log_padding) for name, value in weights.items()}
    return {"config.json": config, "model.safetensors": stored_weights, "reference.safetensors": reference}


# Seeds whose model is well conditioned: rounding every weight to float32 and back moves no gradient by more than 2e-5.
# With others a document's first token may have q nearly at right angles to k: its output is next to nothing, the output norm
# makes it 300 times larger, and the gradients of a float32 program are wrong by 1e-3, whoever wrote it.
CASES = [
    Case("model_k3", "model_k3", 8080, "eight layers in the form of Kimi K3 over four packed documents; A_log is not padded",
         lambda rng: build(rng, K3_CONFIG, (19, 1, 6, 16), "language_model.", (-1,))),
    Case("model_kimi_linear", "model_kimi_linear", 8002, "six layers in the form of Kimi Linear over four packed documents",
         lambda rng: build(rng, KIMI_LINEAR_CONFIG, (21, 1, 2, 9), "", (1, 1, -1, 1))),
    Case("model_block_of_one", "model_block_of_one", 8149, "residual blocks of one layer, no dense layer, no shared experts, latent "
         "width without a norm, softplus decay, MLA with a full-rank query and a gate, three taps, A_log padded with zeros",
         lambda rng: build(rng, BLOCK_OF_ONE_CONFIG, (11, 1, 18), "language_model.", (-1,), a_log_padding=8)),
    Case("model_two_dense", "model_two_dense", 8140, "residual blocks of four in six layers, two dense layers, no "
         "latent width, another bound of the decay, low-rank output gate, MLA first and last, low-rank query without a gate",
         lambda rng: build(rng, TWO_DENSE_CONFIG, (20, 9, 1), "", (-1,))),
]
