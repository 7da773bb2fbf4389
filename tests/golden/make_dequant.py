#!/usr/bin/env python3
"""Makes tests/golden/dequant/: random blocks of every quantised GGUF type and the floats that the
`gguf` package decodes them to. Needs gguf and numpy.

index.json lists for each type its name, number and sizes; blocks.bin holds the stored blocks and
floats.bin the values (f32), both concatenated in that order.
"""

import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

FOLDER = pathlib.Path(__file__).resolve().parent / "dequant"
ELEMENTS = 1024
# Byte offsets of the f16 scales inside a block; all other bytes are random.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0],
          T.IQ4_XS: [0]}


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    index, blocks, floats = [], [], []
    for kind, offsets in SCALES.items():
        size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (ELEMENTS // size, block_bytes), dtype=np.uint8)
        for offset in offsets:
            scale = rng.normal(0, 0.02, (raw.shape[0], 1)).astype(np.float16)
            raw[:, offset:offset + 2] = scale.view(np.uint8)
        values = gguf.quants.dequantize(raw, kind).astype("<f4").reshape(-1)
        assert values.size == ELEMENTS and np.isfinite(values).all()
        index.append(dict(name=kind.name, number=int(kind), bytes=int(raw.size), elements=ELEMENTS))
        blocks.append(raw.tobytes())
        floats.append(values.tobytes())
    (FOLDER / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    (FOLDER / "blocks.bin").write_bytes(b"".join(blocks))
    (FOLDER / "floats.bin").write_bytes(b"".join(floats))


if __name__ == "__main__":
    main()
