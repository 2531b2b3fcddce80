"""Small token files for the tests: a text of an invented language, made into .bin/.idx by prepare or written directly."""

import json
import random
import struct

import driver

VOCABULARY = 257  # of the byte tokenizer: 256 bytes and the end of a document
END_OF_DOCUMENT = 256


def text(seed, words):
    """Words of a small Zipf-distributed vocabulary, each likely to be followed by one of three others: learnable."""
    rng = random.Random(seed)
    syllables = ["ba", "ko", "mi", "ter", "lun", "sha", "ri", "do", "ven", "al", "po", "sit"]
    vocabulary = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 3))) for _ in range(120)]
    followers = {word: rng.sample(vocabulary, 3) for word in set(vocabulary)}
    word, out = vocabulary[0], []
    for _ in range(words):
        out.append(word)
        word = rng.choice(followers[word]) if rng.random() < 0.8 else vocabulary[min(int(rng.paretovariate(0.7)) - 1, 119)]
    return " ".join(out)


def prepare(folder, documents=60, seed=1):
    """A corpus through the prepare command; returns the prefix: PREFIX_train and PREFIX_validation exist."""
    rng = random.Random(seed)
    source = folder / "corpus.jsonl"
    with source.open("w") as file:
        for i in range(documents):
            # Lengths from a few bytes to several sequences of the longest stage.
            words = rng.choice([1, 2, 5, 12, 40, 150, 600])
            file.write(json.dumps({"text": text(seed * 1000 + i, words)}) + "\n")
    prefix = folder / "corpus"
    result = driver.run([driver.program("prepare"), "--input", source, "--format", "jsonl", "--tokenizer", "bytes", "--output", prefix,
                         "--validation-fraction", "0.1"])
    if result.code != 0:
        raise AssertionError(str(result))
    return prefix


def write_megatron(prefix, documents):
    """Documents (lists of tokens) as Megatron .bin/.idx, with exactly the lengths given: prepare never makes a document
    of one token, other programs do."""
    with open(f"{prefix}.bin", "wb") as file:
        for document in documents:
            file.write(struct.pack(f"<{len(document)}H", *document))
    count = len(documents)
    offsets, at = [], 0
    for document in documents:
        offsets.append(at)
        at += 2 * len(document)
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        file.write(struct.pack(f"<{count}i", *(len(document) for document in documents)))
        file.write(struct.pack(f"<{count}q", *offsets))
        file.write(struct.pack(f"<{count + 1}q", *range(count + 1)))
    return prefix


def mixed_documents(seed=3, total=40000):
    """Documents of very different lengths, many of a single token: the packing, the masks and the router see all kinds."""
    rng = random.Random(seed)
    documents, tokens = [], 0
    while tokens < total:
        length = rng.choice([1, 1, 2, 3, 15, 16, 17, 63, 64, 65, 300, 1000])
        body = text(seed + len(documents), length).encode()[: length - 1]
        documents.append(list(body) + [END_OF_DOCUMENT])
        tokens += len(documents[-1])
    return documents


def data_sets(train, validation):
    """The --set flags that make a recipe read these files instead of its own."""
    return {"data.train.0.path": train, "data.validation.0.path": validation}
