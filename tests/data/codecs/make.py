"""Makes the vectors of weight_type_test.cpp: pip install gguf 'mlx[cpu]' ml_dtypes numpy; python make.py.

One file a type, all little-endian: u32 n_rows, n_in, bytes of the codes, bytes of one scale plane (0: none), scale type
(0 f32, 1 f16, 2 bf16), then codes, scales, biases (zeros for types without), and n_rows * n_in expected values in f32.
The decoders are the published ones; MLX's runs in f32, on planes widened exactly. Q8_K and F8 with scales, which they
lack, are one product each here. nvfp4g16_global.bin ends with MLX's global scale, f32.
"""

import pathlib
import struct

import gguf
import ml_dtypes
import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
ROWS = 3


def write(name, n_in, codes, scales, biases, scale_type, expected):
    expected = np.asarray(expected, dtype="<f4")
    assert expected.shape[1] == n_in
    head = struct.pack("<5I", len(expected), n_in, len(codes), len(scales), scale_type)
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


def blocks(rng, kind, n_in, places_of_f16=(), e8m0_at=None):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (ROWS, n_in // block, size), dtype=np.uint8)
    for at in places_of_f16:
        factors = (rng.standard_normal((ROWS, n_in // block)) * 0.02).astype("<f2")
        raw[:, :, at : at + 2] = factors[..., None].view(np.uint8)
    if e8m0_at is not None:
        raw[:, :, e8m0_at] = rng.integers(110, 130, (ROWS, n_in // block))
        raw[0, 0, e8m0_at], raw[1, 0, e8m0_at], raw[1, 1, e8m0_at] = 0, 1, 2
    return raw


def more_ggml(rng, name, **places):
    kind = gguf.GGMLQuantizationType[name]
    n_in = max(2 * gguf.GGML_QUANT_SIZES[kind][0], 64)
    raw = blocks(rng, kind, n_in, **places).reshape(ROWS, -1)
    write(name.lower(), n_in, raw.tobytes(), b"", b"", 0, gguf.quants.dequantize(raw, kind))


def iq1_m(rng):
    """Its f16 factor is spread over the top bits of four u16."""
    kind = gguf.GGMLQuantizationType.IQ1_M
    raw = blocks(rng, kind, 512)
    factors = (rng.standard_normal((ROWS, 2)) * 0.02).astype("<f2").view("<u2")
    for i in range(4):
        high = raw[:, :, 48 + 2 * i + 1]
        raw[:, :, 48 + 2 * i + 1] = (high & 15) | ((factors >> (4 * i)) & 15).astype(np.uint8) << 4
    raw = raw.reshape(ROWS, -1)
    write("iq1_m", 512, raw.tobytes(), b"", b"", 0, gguf.quants.dequantize(raw, kind))


def q8_k(rng):
    raw = rng.integers(0, 256, (ROWS, 2, 292), dtype=np.uint8)
    scales = (rng.standard_normal((ROWS, 2, 1)) * 0.02).astype("<f4")
    raw[:, :, :4] = scales.view(np.uint8)
    expected = scales * raw[:, :, 4:260].view(np.int8).astype("<f4")
    write("q8_k", 512, raw.tobytes(), b"", b"", 0, expected.reshape(ROWS, -1))


def mx_mode(rng, mode, group, name, global_scale=None):
    n_in = 4 * group
    weight = mx.array(rng.standard_normal((ROWS, n_in)).astype("f4") * 0.05)
    extra = {} if global_scale is None else {"global_scale": mx.array(np.float32(global_scale))}
    codes, scales = mx.quantize(weight, mode=mode, **extra)
    expected = np.array(mx.dequantize(codes, scales, mode=mode, dtype=mx.float32, **extra))
    planes = np.array(scales).tobytes()
    write(name, n_in, np.array(codes).tobytes(), planes, bytes(len(planes)), 0, expected)
    if global_scale is not None:
        with open(HERE / f"{name}.bin", "ab") as out:
            out.write(struct.pack("<f", global_scale))


def f8(rng):
    """Rows of 200: a whole and a partial block of 128. Every element but the NaNs occurs."""
    codes = rng.permutation(np.resize([c for c in range(256) if c & 127 != 127], ROWS * 200)).astype(np.uint8)
    scales = (rng.standard_normal((ROWS, 2)) * 0.02).astype("<f4")
    values = codes.view(ml_dtypes.float8_e4m3fn).astype("<f4").reshape(ROWS, 200)
    expected = values * np.repeat(scales, 128, axis=1)[:, :200]
    write("f8_e4m3", 200, codes.tobytes(), scales.tobytes(), bytes(scales.nbytes), 0, expected)


def columns4(rng, is_awq, group):
    """GPTQ (zeros stored less one) and AWQ, packed from known codes as their own tools do."""
    n_out, n_in = 16, 2 * group
    codes = rng.integers(0, 16, (n_in, n_out)).astype(np.uint32)
    zeros = rng.integers(0, 16, (2, n_out)).astype(np.uint32)
    zeros[0, :2] = 0, 15
    scales = (rng.standard_normal((2, n_out)) * 0.02).astype("<f2")

    def pack(values, order):  # along the last axis
        words = np.zeros((*values.shape[:-1], values.shape[-1] // 8), dtype=np.uint32)
        for i, place in enumerate(order):
            words |= values[..., place::8] << np.uint32(4 * i)
        return words

    plain, awq = range(8), (0, 2, 4, 6, 1, 3, 5, 7)
    words = pack(codes, awq) if is_awq else pack(codes.T, plain).T.copy()
    stored_zeros = pack(zeros, awq) if is_awq else pack((zeros - 1) & 15, plain)
    spread = lambda a: np.repeat(a.astype("<f4"), group, axis=0)
    expected = (codes.astype("<f4") - spread(zeros)) * spread(scales)
    planes = scales.tobytes()
    name = f"{'awq' if is_awq else 'gptq'}4g{group}"
    write(name, n_in, words.tobytes(), planes, stored_zeros.tobytes().ljust(len(planes), b"\0"), 1, expected.T)


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
    for bits in (2, 3, 5, 6):
        for scale_type, group in enumerate((32, 64, 128)):
            affine(rng, bits, group, scale_type)
    for name, places in {
        "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "IQ3_S": [0], "IQ3_XXS": [0], "IQ2_XXS": [0],
        "IQ2_XS": [0], "IQ2_S": [0], "IQ1_S": [0],
    }.items():  # fmt: skip
        more_ggml(rng, name, places_of_f16=places)
    more_ggml(rng, "MXFP4", e8m0_at=0)
    iq1_m(rng)
    q8_k(rng)
    mx_mode(rng, "mxfp4", 32, "mxfp4g32")
    mx_mode(rng, "mxfp8", 32, "mxfp8g32")
    mx_mode(rng, "nvfp4", 16, "nvfp4g16")
    mx_mode(rng, "nvfp4", 16, "nvfp4g16_global", global_scale=0.2)
    f8(rng)
    for is_awq in (False, True):
        for group in (32, 64, 128):
            columns4(rng, is_awq, group)


if __name__ == "__main__":
    main()
