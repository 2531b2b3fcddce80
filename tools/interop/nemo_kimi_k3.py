"""Loads an exported Kimi K3 model in NVIDIA NeMo Automodel's own implementation, checks that every tensor is there and none is left
over, and records what the model computes: token ids, targets, logits, loss and the experts that each token chose. Longhaul then
compares:

  convert export --from CHECKPOINT --to DIR --dtype fp32
  TRITON_INTERPRET=1 python3 nemo_kimi_k3.py DIR --output reference.safetensors
  convert compare --model CHECKPOINT --reference reference.safetensors --force-routes --tolerance 1e-4

Needs nemo-automodel, torch, transformers and flash-linear-attention, and no GPU: without one, Triton's interpreter runs the kernels
of flash-linear-attention on the CPU, as they are. Two settings make that possible and leave the mathematics alone: kernels are
not timed (the first configuration is taken), and KDA runs as its recurrence, because the interpreter lacks what the chunked
kernel uses. Everything is f32.
"""

import json
import os
import pathlib
import sys

import recording
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported
    import triton.runtime.autotuner

    triton.runtime.autotuner.Autotuner._bench = lambda self, *args, config, **meta: [0.0, 0.0, 0.0]

from nemo_automodel.components.models.common import BackendConfig  # noqa: E402
from nemo_automodel.components.models.kimi_k3.config import KimiK3TextConfig  # noqa: E402
from nemo_automodel.components.models.kimi_k3.model import KimiK3ForCausalLM, KimiK3Gate  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def load(directory):
    text = json.loads((directory / "config.json").read_text())
    text = dict(text.get("text_config", text))
    for key in ("model_type", "dtype", "torch_dtype"):
        text.pop(key, None)
    config = KimiK3TextConfig(**text, kda_mode="fused_recurrent")
    config.torch_dtype = torch.float32
    backend = BackendConfig(attn="sdpa", linear="torch", rms_norm="torch_fp32", experts="torch", dispatcher="torch")
    model = KimiK3ForCausalLM(config, backend=backend).float()

    released = {}
    for file in sorted(directory.glob("*.safetensors")):
        released.update(load_file(file))
    types = {str(value.dtype) for value in released.values()}
    if types != {"torch.float32"}:
        sys.exit(f"wanted an export with --dtype fp32, got tensors of {sorted(types)}")
    result = model.load_state_dict(model.state_dict_adapter.from_hf(dict(released)), strict=False)
    problems = {"missing": result.missing_keys, "unexpected": result.unexpected_keys}
    # The adapter may pass over names that it does not know, so what was loaded is turned back, too.
    again = model.state_dict_adapter.to_hf(model.state_dict())
    problems["not in NeMo's model"] = sorted(released.keys() - again.keys())
    problems["not in the export"] = sorted(again.keys() - released.keys())
    problems["loaded as something else"] = sorted(
        name for name in released.keys() & again.keys() if not torch.equal(released[name].reshape(-1), again[name].float().reshape(-1)))
    for kind, names in problems.items():
        if names:
            print(f"{kind}: {names[:20]}")
    if any(problems.values()):
        sys.exit(7)
    return model.eval(), len(released)


def record_routes(model, routes):
    """Keeps the expert choices of every router, by layer."""
    for name, module in model.named_modules():
        if isinstance(module, KimiK3Gate):
            number = int(name.split("layers.")[1].split(".")[0])
            module.register_forward_hook(lambda module, inputs, output, number=number: routes.__setitem__(number, output[1]))


def main():
    arguments = recording.parse(__doc__)
    model, count = load(pathlib.Path(arguments.directory))
    routes = {}
    record_routes(model, routes)

    def logits_of(ids):
        output = model(ids)
        return getattr(output, "logits", output)

    loss = recording.record(arguments, model.config.vocab_size, routes, logits_of)
    print(f"NeMo Automodel on torch {torch.__version__}: all {count} tensors match; loss {loss:.9f}, routes of {len(routes)} layers; "
          f"written to {arguments.output}")


if __name__ == "__main__":
    main()
