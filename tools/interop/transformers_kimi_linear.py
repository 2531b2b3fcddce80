"""Loads an exported Kimi-Linear model in Hugging Face transformers, checks that every key is there and none is left over,
and records what the model computes: token ids, targets, logits, loss and the experts that each token chose. Longhaul then
compares:

  convert export --from CHECKPOINT --to DIR --dtype fp32
  python3 transformers_kimi_linear.py DIR --output reference.safetensors
  convert compare --model CHECKPOINT --reference reference.safetensors --force-routes --tolerance 1e-4

Needs torch (CPU) and transformers 5.17 or newer. Everything runs in f32 on the CPU; the model's own PyTorch kernels are used.
"""

import sys

import recording
import torch
import transformers


def load(directory):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True,
                                                                    local_files_only=True)
    problems = {kind: sorted(map(str, info[kind])) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs") if info.get(kind)}
    for kind, names in problems.items():
        print(f"{kind}: {names[:20]}")
    if problems:
        sys.exit(7)
    return model.eval()


def record_routes(model, routes):
    """Keeps the expert choices of every router, by layer."""
    for number, layer in enumerate(model.model.layers):
        gate = getattr(layer.mlp if hasattr(layer, "mlp") else layer.block_sparse_moe, "gate", None)
        if gate is not None:
            gate.register_forward_hook(lambda module, inputs, output, number=number: routes.__setitem__(number, output[2]))


def main():
    arguments = recording.parse(__doc__)
    model = load(arguments.directory)
    routes = {}
    record_routes(model, routes)
    loss = recording.record(arguments, model.config.vocab_size, routes, lambda ids: model(ids, use_cache=False).logits)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: all keys match; loss {loss:.9f}, "
          f"routes of {len(routes)} layers; written to {arguments.output}")


if __name__ == "__main__":
    main()
