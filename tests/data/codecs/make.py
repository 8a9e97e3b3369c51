"""Makes the vectors of weight_type_test.cpp: pip install gguf 'mlx[cpu]' numpy; python make.py.

One file a type, all little-endian: u32 n_rows, n_in, bytes of the codes, bytes of one scale plane (0: none), scale type
(0 f32, 1 f16, 2 bf16), then codes, scales, biases, and n_rows * n_in expected values in f32. The decoders are the
published ones; MLX's runs in f32, on planes widened exactly.
"""

import pathlib
import struct

import gguf
import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
ROWS = 3


def write(name, n_in, codes, scales, biases, scale_type, expected):
    expected = np.asarray(expected, dtype="<f4")
    assert expected.shape == (ROWS, n_in)
    head = struct.pack("<5I", ROWS, n_in, len(codes), len(scales), scale_type)
    (HERE / f"{name}.bin").write_bytes(head + codes + scales + biases + expected.tobytes())


def ggml(rng, name, places_of_f16):
    """Random blocks: every code, scale and sign occurs; only the f16 factors are kept in a sane range."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_in = max(2 * block, 64)
    raw = rng.integers(0, 256, (ROWS, n_in // block, size), dtype=np.uint8)
    for at in places_of_f16:
        factors = (rng.standard_normal((ROWS, n_in // block)) * 0.02).astype("<f2")
        raw[:, :, at : at + 2] = factors[..., None].view(np.uint8)
    raw = raw.reshape(ROWS, -1)
    write(name.lower(), n_in, raw.tobytes(), b"", b"", 0, gguf.quants.dequantize(raw, kind))


def affine(rng, bits, group, scale_type):
    n_in = 2 * group
    dtype = [mx.float32, mx.float16, mx.bfloat16][scale_type]
    weight = mx.array(rng.standard_normal((ROWS, n_in)).astype("f4") * 0.05).astype(dtype)
    codes, scales, biases = mx.quantize(weight, group_size=group, bits=bits)
    plane = lambda a: np.array(a.view(mx.uint32 if scale_type == 0 else mx.uint16)).tobytes()
    wide = [p.astype(mx.float32) for p in (scales, biases)]
    expected = mx.dequantize(codes, *wide, group_size=group, bits=bits)
    write(f"affine{bits}g{group}", n_in, np.array(codes).tobytes(), plane(scales), plane(biases), scale_type, np.array(expected))


def main():
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(7)
    for name, places in {
        "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
        "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    }.items():  # fmt: skip
        ggml(rng, name, places)
    for bits in (4, 8):
        for scale_type, group in enumerate((32, 64, 128)):
            affine(rng, bits, group, scale_type)


if __name__ == "__main__":
    main()
