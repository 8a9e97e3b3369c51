"""Makes qwen3-next-151.f32: pip install numpy; python make.py FOLDER (the unpacked checkpoint qwen3-next).

The logits of token 151 of prompt_2, little-endian f32, from the formulas of the model in f64: the delta rule token by
token. Prints how far the reference is from them at each position where it is further than 1e-4 of its largest logit.
"""

import json
import pathlib
import struct
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
POSITION = 151
TYPES = {"F32": np.float32, "I32": np.int32, "BF16": np.uint16}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        x = np.frombuffer(data[8 + size + begin : 8 + size + end], TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32)
        out[name] = (x if entry["dtype"] == "I32" else x.astype(np.float64)).reshape(entry["shape"])
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def delta_layer(c, w, x):
    n, hk, hv = len(x), c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv, r = c["linear_key_head_dim"], c["linear_value_head_dim"], hv // hk
    grouped = (x @ w["in_proj_qkvz.weight"].T).reshape(n, hk, -1)
    q, k, v, z = np.split(grouped, np.cumsum([dk, dk, r * dv]), axis=-1)
    b, a = np.split((x @ w["in_proj_ba.weight"].T).reshape(n, hk, 2 * r), 2, axis=-1)
    mixed = np.concatenate([part.reshape(n, -1) for part in (q, k, v)], axis=-1)
    taps = w["conv1d.weight"][:, 0]
    padded = np.concatenate([np.zeros((taps.shape[1] - 1, mixed.shape[1])), mixed])
    mixed = silu(sum(padded[j : j + n] * taps[:, j] for j in range(taps.shape[1])))
    q, k, v = np.split(mixed, np.cumsum([hk * dk, hk * dk]), axis=-1)
    unit = lambda t: t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6)
    q = np.repeat(unit(q.reshape(n, hk, dk)) * dk**-0.5, r, axis=1)
    k = np.repeat(unit(k.reshape(n, hk, dk)), r, axis=1)
    v = v.reshape(n, hv, dv)
    decay = np.exp(-np.exp(w["A_log"]) * np.logaddexp(0, a.reshape(n, hv) + w["dt_bias"]))
    beta = sigmoid(b.reshape(n, hv))
    state, y = np.zeros((hv, dv, dk)), np.zeros((n, hv, dv))
    for t in range(n):
        state = state * decay[t][:, None, None]
        delta = (v[t] - np.einsum("hvk,hk->hv", state, k[t])) * beta[t][:, None]
        state = state + delta[:, :, None] * k[t][:, None, :]
        y[t] = np.einsum("hvk,hk->hv", state, q[t])
    y = rms(y, w["norm.weight"], c["rms_norm_eps"]) * silu(z.reshape(n, hv, dv))
    return y.reshape(n, -1) @ w["out_proj.weight"].T


def attention_layer(c, w, x):
    n, h, kv, d = len(x), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    rope = c["rope_parameters"]
    half = int(d * rope["partial_rotary_factor"]) // 2
    angles = np.arange(n)[:, None, None] / rope["rope_theta"] ** (np.arange(half) / half)

    def rotate(t):
        p, q = t[..., :half], t[..., half : 2 * half]
        turned = [p * np.cos(angles) - q * np.sin(angles), q * np.cos(angles) + p * np.sin(angles)]
        return np.concatenate([*turned, t[..., 2 * half :]], axis=-1)

    q, gate = np.split((x @ w["q_proj.weight"].T).reshape(n, h, 2 * d), 2, axis=-1)
    q = rotate(rms(q, 1 + w["q_norm.weight"], c["rms_norm_eps"]))
    k = rotate(rms((x @ w["k_proj.weight"].T).reshape(n, kv, d), 1 + w["k_norm.weight"], c["rms_norm_eps"]))
    v = (x @ w["v_proj.weight"].T).reshape(n, kv, d)
    scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, h // kv, axis=1)) * d**-0.5
    scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    y = np.einsum("hqk,khd->qhd", softmax(scores), np.repeat(v, h // kv, axis=1))
    return (y * sigmoid(gate)).reshape(n, -1) @ w["o_proj.weight"].T


def mlp(w, name, x):
    inner = silu(x @ w[name + "gate_proj.weight"].T) * (x @ w[name + "up_proj.weight"].T)
    return inner @ w[name + "down_proj.weight"].T


def experts(c, w, x):
    p = softmax(x @ w["gate.weight"].T)
    chosen = np.argsort(-p, axis=-1, kind="stable")[:, : c["num_experts_per_tok"]]
    weights = np.take_along_axis(p, chosen, -1)
    weights /= weights.sum(-1, keepdims=True)
    out = sigmoid(x @ w["shared_expert_gate.weight"].T) * mlp(w, "shared_expert.", x)
    for t in range(len(x)):
        for e, weight in zip(chosen[t], weights[t]):
            out[t] += weight * mlp(w, f"experts.{e}.", x[t])
    return out


def logits(c, tensors, tokens):
    below = lambda prefix: {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
    x = tensors["model.embed_tokens.weight"][tokens]
    for i, kind in enumerate(c["layer_types"]):
        w = below(f"model.layers.{i}.")
        normed = rms(x, 1 + w["input_layernorm.weight"], c["rms_norm_eps"])
        if kind == "linear_attention":
            x = x + delta_layer(c, below(f"model.layers.{i}.linear_attn."), normed)
        else:
            x = x + attention_layer(c, below(f"model.layers.{i}.self_attn."), normed)
        normed = rms(x, 1 + w["post_attention_layernorm.weight"], c["rms_norm_eps"])
        x = x + experts(c, below(f"model.layers.{i}.mlp."), normed)
    return rms(x, 1 + tensors["model.norm.weight"], c["rms_norm_eps"]) @ tensors["lm_head.weight"].T


def main(folder):
    golden = read(folder / "golden.safetensors")
    config = json.loads((folder / "config.json").read_text())
    got = logits(config, read(folder / "model.safetensors"), golden["prompt_2"])
    got[POSITION].astype("<f4").tofile(HERE / f"qwen3-next-{POSITION}.f32")
    error = np.abs(got - golden["logits_2"]).max(-1) / np.abs(golden["logits_2"]).max()
    for position in np.nonzero(error > 1e-4)[0]:
        print(position, error[position])


main(pathlib.Path(sys.argv[1]))
