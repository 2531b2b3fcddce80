"""Every tensor name of the released Kimi K3, through import and export: a synthetic directory with the names, types and
shape pattern of the release and tiny widths is imported, exported again, and compared tensor by tensor, byte by byte.

  k3_names_test.py CONVERT           few layers and experts: seconds, part of the tests
  k3_names_test.py CONVERT --full    all 93 layers and 896 experts, 497,220 tensors in 96 files: minutes, prints the times

The names are written down here from the release's tensor listing, not taken from the program under test. Only Python's own
library is used.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HIDDEN, LATENT, EXPERT, DENSE, VOCABULARY = 8, 32, 32, 6, 16
HEADS, HEAD, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 2, 4, 3, 5, 3, 2, 4
SIZES = {"BF16": 2, "F32": 4, "U8": 1}


def layers_of(count):
    """1-based numbers of the MLA layers: every fourth, and the last."""
    return [layer for layer in range(1, count + 1) if layer % 4 == 0 or layer == count]


def config(layers, experts):
    mla = layers_of(layers)
    return {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16", "tie_word_embeddings": False,
        "vision_config": {"vt_layers": 27, "patch_size": 14},
        "text_config": {
            "model_type": "kimi_linear", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": DENSE, "num_hidden_layers": layers,
            "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": Q_RANK, "kv_lora_rank": KV_RANK, "qk_nope_head_dim": NOPE,
            "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "mla_use_nope": True, "mla_use_output_gate": True, "hidden_act": "situ",
            "attn_res_block_size": 12, "first_k_dense_replace": 1, "num_experts": experts, "num_experts_per_token": 2, "num_shared_experts": 2,
            "moe_intermediate_size": EXPERT, "routed_expert_hidden_size": LATENT, "latent_moe_use_norm": True, "rms_norm_eps": 1e-5,
            "linear_attn_config": {"head_dim": HEAD, "num_heads": HEADS, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                                   "use_full_rank_gate": True, "full_attn_layers": mla,
                                   "kda_layers": [layer for layer in range(1, layers + 1) if layer not in mla]}}}


def vision():
    yield "vision_tower.patch_embed.proj.weight", "BF16", [4, 3, 2, 2]
    yield "vision_tower.patch_embed.pos_emb.weight", "BF16", [2, 2, 4]
    yield "vision_tower.encoder.final_layernorm.weight", "BF16", [4]
    for block in range(27):
        for name, shape in (("norm0", [4]), ("norm1", [4]), ("wqkv", [12, 4]), ("wo", [4, 4]), ("mlp.fc0", [8, 4]), ("mlp.fc1", [4, 8])):
            yield f"vision_tower.encoder.blocks.{block}.{name}.weight", "BF16", shape
    yield "mm_projector.proj.0.weight", "BF16", [4, 4]
    yield "mm_projector.proj.2.weight", "BF16", [8, 4]
    yield "mm_projector.post_norm.weight", "BF16", [8]


def tensors(layers, experts):
    """(name, dtype, shape) of the release."""
    inner = HEADS * HEAD
    yield "language_model.lm_head.weight", "BF16", [VOCABULARY, HIDDEN]
    yield "language_model.model.embed_tokens.weight", "BF16", [VOCABULARY, HIDDEN]
    yield "language_model.model.norm.weight", "BF16", [HIDDEN]
    yield "language_model.model.output_attn_res_norm.weight", "BF16", [HIDDEN]
    yield "language_model.model.output_attn_res_proj.weight", "BF16", [1, HIDDEN]
    for layer in range(layers):
        p = f"language_model.model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            yield f"{p}{name}.weight", "BF16", [HIDDEN]
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            yield f"{p}{name}.weight", "BF16", [1, HIDDEN]
        a = p + "self_attn."
        if layer + 1 in layers_of(layers):
            yield from ((a + "q_a_proj.weight", "BF16", [Q_RANK, HIDDEN]), (a + "q_a_layernorm.weight", "BF16", [Q_RANK]),
                        (a + "q_b_proj.weight", "BF16", [HEADS * (NOPE + ROPE), Q_RANK]),
                        (a + "kv_a_proj_with_mqa.weight", "BF16", [KV_RANK + ROPE, HIDDEN]), (a + "kv_a_layernorm.weight", "BF16", [KV_RANK]),
                        (a + "kv_b_proj.weight", "BF16", [HEADS * (NOPE + VALUE), KV_RANK]),
                        (a + "g_proj.weight", "BF16", [HEADS * VALUE, HIDDEN]), (a + "o_proj.weight", "BF16", [HIDDEN, HEADS * VALUE]))
        else:
            for which in "qkv":
                yield f"{a}{which}_proj.weight", "BF16", [inner, HIDDEN]
                yield f"{a}{which}_conv1d.weight", "F32", [inner, 1, 4]
            yield from ((a + "f_a_proj.weight", "BF16", [HEAD, HIDDEN]), (a + "f_b_proj.weight", "BF16", [inner, HEAD]),
                        (a + "b_proj.weight", "BF16", [HEADS, HIDDEN]), (a + "A_log", "F32", [128]), (a + "dt_bias", "F32", [inner]),
                        (a + "o_norm.weight", "F32", [HEAD]), (a + "g_proj.weight", "BF16", [inner, HIDDEN]),
                        (a + "o_proj.weight", "BF16", [HIDDEN, inner]))
        if layer == 0:
            yield from ((p + "mlp.gate_proj.weight", "BF16", [DENSE, HIDDEN]), (p + "mlp.up_proj.weight", "BF16", [DENSE, HIDDEN]),
                        (p + "mlp.down_proj.weight", "BF16", [HIDDEN, DENSE]))
            continue
        m = p + "block_sparse_moe."
        yield from ((m + "gate.weight", "BF16", [experts, HIDDEN]), (m + "gate.e_score_correction_bias", "F32", [experts]),
                    (m + "routed_expert_down_proj.weight", "BF16", [LATENT, HIDDEN]), (m + "routed_expert_norm.weight", "BF16", [LATENT]),
                    (m + "routed_expert_up_proj.weight", "BF16", [HIDDEN, LATENT]),
                    (m + "shared_experts.gate_proj.weight", "BF16", [2 * EXPERT, HIDDEN]),
                    (m + "shared_experts.up_proj.weight", "BF16", [2 * EXPERT, HIDDEN]),
                    (m + "shared_experts.down_proj.weight", "BF16", [HIDDEN, 2 * EXPERT]))
        for expert in range(experts):
            for which, out, width in (("w1", EXPERT, LATENT), ("w2", LATENT, EXPERT), ("w3", EXPERT, LATENT)):
                yield f"{m}experts.{expert}.{which}.weight_packed", "U8", [out, width // 2]
                yield f"{m}experts.{expert}.{which}.weight_scale", "U8", [out, width // 32]
    yield from vision()


def content(name, dtype, count):
    """Bytes that depend on the name, and are what an export of them would write again: finite, canonical MXFP4."""
    seed = hashlib.blake2b(name.encode(), digest_size=32).digest()
    if name.endswith("A_log"):
        return struct.pack(f"<{HEADS}f", *[0.25 + seed[i] for i in range(HEADS)]) + bytes(4 * (128 - HEADS))
    if name.endswith("_scale"):
        return bytes(120 + byte % 8 for byte in (seed * (count // 32 + 1))[:count])
    if name.endswith("_packed"):
        # A group is 16 bytes; its first code is 6 or -6, so that the scale is the one that an encoder would choose.
        groups = (seed[:15] for _ in range(count // 16))
        return b"".join(bytes([group[0] & 0xF8 | 7]) + group for group in groups)
    size = SIZES[dtype]
    data = bytearray((seed * (count * size // 32 + 1))[: count * size])
    data[size - 1::size] = bytes(byte & 0xBF for byte in data[size - 1::size])  # exponents below the largest: finite
    return bytes(data)


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def write_file(path, entries):
    header, begin = {}, 0
    for name, dtype, shape in entries:
        end = begin + elements(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, shape in entries:
            file.write(content(name, dtype, elements(shape)))


def write_release(folder, layers, experts, shards):
    folder.mkdir()
    entries = list(tensors(layers, experts))
    each = -(-len(entries) // shards)
    if each % 2 == 1:
        each += 1
    parts = [entries[i:i + each] for i in range(0, len(entries), each)]
    index = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        write_file(folder / name, part)
        index |= {entry[0]: name for entry in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config(layers, experts)))
    return len(entries), len(parts)


def read_release(folder):
    """{name: (dtype, shape, bytes)} of all files, checked against the index where there is one."""
    found, files = {}, sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())["weight_map"] if index.exists() else None
    for path in files:
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            assert name not in found, f"{name} is in two files"
            assert listed is None or listed[name] == path.name, f"{name}: the index says {listed.get(name)}, it is in {path.name}"
            begin, end = entry["data_offsets"]
            found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    assert listed is None or set(listed) == set(found), "the index lists other tensors than the files hold"
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convert")
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    layers, experts, shards = (93, 896, 96) if arguments.full else (9, 6, 7)
    work = pathlib.Path(tempfile.mkdtemp(prefix="k3_names_"))
    try:
        count, files = write_release(work / "release", layers, experts, shards)
        assert not arguments.full or count == 497220, count
        times = []
        for command in (["import", "--from", work / "release", "--to", work / "checkpoint"],
                        ["export", "--from", work / "checkpoint", "--to", work / "again", "--experts", "mxfp4", "--max-shard-size",
                         "2MB" if arguments.full else "20KB"]):
            start = time.monotonic()
            subprocess.run([arguments.convert, *command], check=True, stdout=None if arguments.full else subprocess.DEVNULL)
            times.append(time.monotonic() - start)
        before, after = read_release(work / "release"), read_release(work / "again")
        assert len(before) == count
        different = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        for name in sorted(different)[:10]:
            print("different:", name, before.get(name, "missing")[:2], after.get(name, "missing")[:2])
        print(f"{count} tensors in {files} files: import {times[0]:.1f} s, export {times[1]:.1f} s, {len(different)} different")
        return 1 if different else 0
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
