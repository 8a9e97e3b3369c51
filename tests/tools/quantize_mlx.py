#!/usr/bin/env python3
"""quantize_mlx.py IN OUT [--bits 4] [--group 32]: a checkpoint folder with its projections in MLX's affine format.

IN: config.json, model.safetensors (BF16). Every 2-D weight but norms is quantized by the rule of spec KV-9 (which is
MLX's), scales and biases in BF16. Standard library only; meant for the tiny reference checkpoints.
"""
import argparse
import json
import pathlib
import struct


def bf16_to_f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f32_to_bf16(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7FFF + ((u >> 16) & 1)) >> 16


def quantize_group(values, bits):
    n = (1 << bits) - 1
    low, high = min(values), max(values)
    scale = max(f32((high - low) / n), f32(1e-7))
    if abs(low) > abs(high):
        edge = low
    else:
        scale, edge = -scale, high
    q0 = round(f32(edge / scale))
    bias = 0.0
    if q0 != 0:
        scale, bias = f32(edge / q0), edge
    return [min(max(round(f32((v - bias) / scale)), 0), n) for v in values], scale, bias


def quantize_rows(data, rows, cols, bits, group):
    values = [bf16_to_f32(b) for b in struct.unpack(f"<{rows * cols}H", data)]
    packed, scales, biases = [], [], []
    for start in range(0, rows * cols, group):
        codes, scale, bias = quantize_group(values[start:start + group], bits)
        scales.append(f32_to_bf16(scale))
        biases.append(f32_to_bf16(bias))
        stream = sum(code << (bits * j) for j, code in enumerate(codes))
        packed.append(stream.to_bytes(group * bits // 8, "little"))
    return (b"".join(packed), struct.pack(f"<{len(scales)}H", *scales),
            struct.pack(f"<{len(biases)}H", *biases))


def read_tensors(path):
    blob = path.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + size])
    header.pop("__metadata__", None)
    for name, t in header.items():
        begin, end = t["data_offsets"]
        yield name, t["dtype"], t["shape"], blob[8 + size + begin:8 + size + end]


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4)
    parser.add_argument("--group", type=int, choices=(32, 64, 128), default=32)
    args = parser.parse_args()
    tensors = []
    for name, dtype, shape, data in read_tensors(args.source / "model.safetensors"):
        if len(shape) != 2 or dtype != "BF16" or shape[1] % args.group:
            tensors.append((name, dtype, shape, data))
            continue
        codes, scales, biases = quantize_rows(data, *shape, args.bits, args.group)
        module = name.removesuffix(".weight")
        tensors += [(name, "U32", [shape[0], shape[1] * args.bits // 32], codes),
                    (module + ".scales", "BF16", [shape[0], shape[1] // args.group], scales),
                    (module + ".biases", "BF16", [shape[0], shape[1] // args.group], biases)]
    args.target.mkdir(parents=True, exist_ok=True)
    config = json.loads((args.source / "config.json").read_text())
    config["quantization"] = {"group_size": args.group, "bits": args.bits, "mode": "affine"}
    (args.target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tensors(args.target / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
