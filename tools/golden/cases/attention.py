"""Golden cases of multi-head latent attention: the softmax core alone, and whole layers."""
from case import differentiated, matrix, norm_weight, normal, packed, tensor_case
from formulas import mla


def attention(rng, options, lengths, size):
    heads, qk_dim, v_dim, cu_seqlens = 2, 12, 10, packed(*lengths)
    tokens = int(cu_seqlens[-1])
    inputs = {"q": normal(rng, tokens, heads, qk_dim, std=size), "k": normal(rng, tokens, heads, qk_dim, std=size),
              "v": normal(rng, tokens, heads, v_dim)}

    def run(inputs, weights):
        o, lse = mla.attention(inputs["q"], inputs["k"], inputs["v"], cu_seqlens)
        return {"o": o}, {"lse": lse}

    return differentiated(rng, run, inputs, constants={"cu_seqlens": cu_seqlens})


def attention_case(name, seed, about, lengths, size):
    return tensor_case("mla_attention", name, seed, about, lambda rng, options: attention(rng, options, lengths, size))


def layer_weights(rng, hidden, options):
    """Random weights of an MLA layer with the released names."""
    heads, rank = options["num_attention_heads"], options["kv_lora_rank"]
    nope, rope, v_dim = options["qk_nope_head_dim"], options["qk_rope_head_dim"], options["v_head_dim"]
    weights = {"kv_a_proj_with_mqa.weight": matrix(rng, rank + rope, hidden), "kv_a_layernorm.weight": norm_weight(rng, rank),
               "kv_b_proj.weight": matrix(rng, heads * (nope + v_dim), rank), "o_proj.weight": matrix(rng, hidden, heads * v_dim)}
    if options["q_lora_rank"] is None:
        weights |= {"q_proj.weight": matrix(rng, heads * (nope + rope), hidden, gain=2.0)}
    else:
        weights |= {"q_a_proj.weight": matrix(rng, options["q_lora_rank"], hidden),
                    "q_a_layernorm.weight": norm_weight(rng, options["q_lora_rank"]),
                    "q_b_proj.weight": matrix(rng, heads * (nope + rope), options["q_lora_rank"], gain=2.0)}
    if options["mla_use_output_gate"]:
        weights |= {"g_proj.weight": matrix(rng, heads * v_dim, hidden)}
    return weights


def layer(rng, options):
    hidden, cu_seqlens = 20, packed(13, 1, 10)

    def run(inputs, weights):
        return {"y": mla.mla_layer(inputs["x"], weights, options, cu_seqlens)}, {}

    x = normal(rng, int(cu_seqlens[-1]), hidden)
    return differentiated(rng, run, {"x": x}, layer_weights(rng, hidden, options), {"cu_seqlens": cu_seqlens})


SHAPE = {"num_attention_heads": 3, "kv_lora_rank": 9, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
         "latent_norm_eps": mla.LATENT_NORM_EPS}

CASES = [
    attention_case("packed", 3001, "documents of mixed lengths", (17, 1, 9, 5), size=1.0),
    attention_case("large_scores", 3002, "scores of tens: exponentials overflow unless the maximum is taken off", (20,), size=6.0),
    tensor_case("mla_layer", "k3", 3003, "low-rank query and output gate", layer, q_lora_rank=7, mla_use_output_gate=True, **SHAPE),
    tensor_case("mla_layer", "kimi_linear", 3004, "full-rank query, no gate", layer,
                q_lora_rank=None, mla_use_output_gate=False, **SHAPE),
]
