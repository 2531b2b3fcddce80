"""What the programs beside this one share: token ids of a seed, what a model of another program computes for them, and the file of it
for `convert compare`."""

import argparse

import torch
from safetensors.torch import save_file

IGNORED = -100


def parse(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="what convert export wrote")
    parser.add_argument("--output", required=True, help="the safetensors file for convert compare")
    parser.add_argument("--tokens", type=int, default=77)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def record(arguments, vocab_size, routes, logits_of):
    """logits_of(ids [1, tokens]) returns logits [1, tokens, vocabulary], and leaves in `routes` the experts of each token, by layer.
    Writes the file and returns the loss, nats a target."""
    generator = torch.Generator().manual_seed(arguments.seed)
    ids = torch.randint(0, vocab_size, (1, arguments.tokens), generator=generator)
    targets = torch.cat([ids[:, 1:], torch.full((1, 1), IGNORED)], dim=1)
    with torch.no_grad():
        logits = logits_of(ids).float()
    loss = torch.nn.functional.cross_entropy(logits[0].double(), targets[0], ignore_index=IGNORED)
    recorded = {"input_ids": ids, "targets": targets, "logits": logits, "loss": loss.reshape(1)}
    for number, chosen in routes.items():
        recorded[f"routes.{number}"] = chosen.reshape(arguments.tokens, -1).sort(dim=-1).values.to(torch.int64)
    save_file({name: value.contiguous() for name, value in recorded.items()}, arguments.output)
    return loss.item()
