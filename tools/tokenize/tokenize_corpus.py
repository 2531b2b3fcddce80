#!/usr/bin/env python3
"""Tokenises text for models with a vocabulary larger than bytes: trains a byte-level BPE on the files (or takes a tokenizer.json)
and writes PREFIX.bin and PREFIX.idx, the format that recipes read, with one document a file.

    tokenize_corpus.py --vocab 32768 --output data/h200_1b_train FILE...
    tokenize_corpus.py --tokenizer tokenizer.json --output data/mine FILE...

Needs numpy and the package tokenizers. The last id of a trained vocabulary ends each document. Files ending in .gz are unpacked.
"""

import argparse
import gzip
import pathlib
import struct
import sys

import numpy as np
import tokenizers

END_OF_DOCUMENT = "<|end|>"
TOKEN_TYPES = {np.dtype(np.uint16): 8, np.dtype(np.int32): 4}  # codes of the index


def text_of(path):
    opened = gzip.open(path, "rt", errors="replace") if path.suffix == ".gz" else open(path, errors="replace")
    with opened as file:
        return file.read()


def trained(paths, vocab):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END_OF_DOCUMENT], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((text_of(path) for path in paths), trainer)
    return tokenizer


def write_index(path, dtype, lengths):
    """Megatron's index: sizes and byte offsets of sequences, then where documents begin."""
    sizes = np.asarray(lengths, dtype=np.int32)
    ends = np.cumsum(sizes.astype(np.int64) * dtype.itemsize)
    offsets = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    documents = np.arange(len(sizes) + 1, dtype=np.int64)
    with open(path, "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, TOKEN_TYPES[dtype], len(sizes), len(documents)))
        for part in (sizes, offsets, documents):
            file.write(part.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", required=True, help="prefix of the two files")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--vocab", type=int, help="train a vocabulary of this size; written to PREFIX.tokenizer.json")
    source.add_argument("--tokenizer", help="a tokenizer.json that exists")
    parser.add_argument("--end", default=END_OF_DOCUMENT, help="the token that ends a document (default %(default)s)")
    options = parser.parse_args()

    tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer) if options.tokenizer else trained(options.files, options.vocab)
    end = tokenizer.token_to_id(options.end)
    if end is None:
        sys.exit(f"the tokenizer has no token {options.end}; name the one that ends documents with --end")
    dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.int32)
    lengths = []
    with open(f"{options.output}.bin", "wb") as tokens:
        for path in options.files:
            ids = tokenizer.encode(text_of(path)).ids + [end]
            tokens.write(np.asarray(ids, dtype=dtype).tobytes())
            lengths.append(len(ids))
    write_index(f"{options.output}.idx", dtype, lengths)
    if options.vocab:
        tokenizer.save(f"{options.output}.tokenizer.json")
    print(f"{sum(lengths)} tokens in {len(lengths)} documents, vocabulary of {tokenizer.get_vocab_size()}: {options.output}.bin, .idx")


if __name__ == "__main__":
    main()
