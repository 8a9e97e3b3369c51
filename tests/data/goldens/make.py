"""Makes NAME/golden_f64.safetensors: pip install torch transformers==5.17.0 safetensors; python make.py FOLDER [NAME...]
(FOLDER: the unpacked reference checkpoints).

The reference logits are computed in f32. Here the same code of transformers runs in f64, its upcasts to f32 replaced by
upcasts to f64, with rope tables from f64 angles (MOD-2). Kept are the logits of the positions at which the stored ones
are further than LIMIT of the prompt's largest logit from these. Prints how many and how far, and the same for rope
tables from f32 angles, which is how the reference makes them.
"""

import importlib
import pathlib
import sys
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
LIMIT = 5e-5
FAMILIES = {"gemma4-hd64": "gemma4", "qwen3-next": "qwen3_next"}


class WideTorch(types.ModuleType):
    """torch, with f64 where a module asks for f32."""

    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


def frequencies(rope, head_dim):
    share = rope.get("partial_rotary_factor", 1.0)
    n_pairs = int(share * head_dim) // 2
    width = head_dim if rope["rope_type"] == "proportional" else 2 * n_pairs
    f = rope["rope_theta"] ** (-2 * torch.arange(n_pairs, dtype=torch.float64) / width)
    return torch.nn.functional.pad(f, (0, width // 2 - n_pairs))


def rope_tables(config, wide_angles):
    def forward(self, x, position_ids, layer_type=None):
        rope, layer = config.rope_parameters, config
        if layer_type:
            rope, layer = rope[layer_type], config.per_layer_config[layer_type]
        f = frequencies(rope, layer.head_dim)
        if not wide_angles:
            f = getattr(self, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
        angles = (position_ids[0].to(f.dtype)[:, None] * f)[None]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    return forward


def open_wide(folder, family):
    """The model in f64; its rope frequencies stay as they were made, in f32."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **plain).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.double()
    for part in model.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and buffer.dtype == torch.float32 and "inv_freq" not in name:
                part._buffers[name] = buffer.double()
    module.torch = WideTorch("torch")
    return model


def main(folder, names):
    torch.Tensor.float = torch.Tensor.double
    for name in names:
        golden = load_file(folder / name / "golden.safetensors")
        model = open_wide(folder / name, FAMILIES[name])
        ropes = [m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding")]
        kept = {}
        for k in sorted(key[len("prompt_") :] for key in golden if key.startswith("prompt_")):
            tokens, stored = golden[f"prompt_{k}"].long()[None], golden[f"logits_{k}"].double()
            for wide_angles in (False, True):
                for rope in ropes:
                    type(rope).forward = rope_tables(model.config, wide_angles)
                with torch.no_grad():
                    logits = model(tokens, use_cache=False).logits[0]
                assert logits.dtype == torch.float64
                error = (logits - stored).abs().amax(-1) / stored.abs().max()
                print(
                    f"{name}, {tokens.shape[1]} tokens, f64 with {'f64' if wide_angles else 'f32'} angles: stored within "
                    f"{error.max():.1e} (token {error.argmax()}), {(error > LIMIT).sum()} beyond {LIMIT:.0e}"
                )
            at = (error > LIMIT).nonzero()[:, 0]
            if len(at):
                kept[f"positions_{k}"] = at.to(torch.int32)
                kept[f"logits_{k}"] = logits[at].to(torch.float32).contiguous()
        (HERE / name).mkdir(exist_ok=True)
        save_file(kept, HERE / name / "golden_f64.safetensors")


main(pathlib.Path(sys.argv[1]), sys.argv[2:] or list(FAMILIES))
