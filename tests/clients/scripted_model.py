"""A checkpoint that says what it is told to: python scripted_model.py FOLDER.

One llama layer whose attention and MLP add nothing, so that the next token depends on the last token alone. Every step
of every script is a token of its own: its row of the embedding is a random ±1 code, and the head has that code in the
row of the token that follows. Everything that is no script step shares one code, which the head answers with EOS.
Tokens are bytes, plus the pieces of the scripts; a script starts at its trigger, a special token that the chat
template puts at the end of the prompt when the last message holds "[name]" (a raw completion may write it itself).
"""
import json
import pathlib
import random
import sys

import numpy
from safetensors.numpy import save_file

CALL_WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call>'
CALL_TIME = '<tool_call>\n{"name": "get_time", "arguments": {"zone": {"name": "UTC"}, "exact": true}}\n</tool_call>'
CALL_UNKNOWN = '<tool_call>\n{"name": "launch_rocket", "arguments": {}}\n</tool_call>'

SCRIPTS = {
    "plain": "Hello there, dear friend of mine.",
    "count": "one two three-four five six",
    "unicode": "Grüße 🙂🇨🇭 from 日本 — naïve 👩‍👩‍👧 end",
    "tool": "Let me look.\n" + CALL_WEATHER,
    "two": CALL_WEATHER + "\n" + CALL_TIME,
    "unknown": "Right. " + CALL_UNKNOWN,
    "unfinished": 'Sure. <tool_call>\n{"name": "get_weather", "argum',
    "after": CALL_TIME + "\nThat was it.",
    "think": "<think>\nTwo and two.\n</think>\n\nIt is four.",
    "think_tool": "<think>\nBetter ask.\n</think>\n\n" + CALL_WEATHER,
    "open": "So deep a thought.\n</think>\n\nForty-two it is.",
    "unclosed": "<think>\nThis never comes to a",
    "answer": "Sunny in Zürich, 21 degrees.",
}
# Never ends: its last piece leads back to its first.
LOOP = "la di da dum dee "
OPENED = "open"  # the template opens its think block

TEMPLATE_HEAD = r"""
{%- if tools %}
{{- '<|im_start|>system\n# Tools\n<tools>' }}
{%- for tool in tools %}{{- '\n' ~ (tool | tojson) }}{%- endfor %}
{{- '\n</tools>\nCall one so:\n<tool_call>\n{"name": <name>, "arguments": <json>}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' %}
{{- raise_exception('roles must alternate') }}
{%- endif %}
{{- '<|im_start|>' ~ message.role ~ '\n' }}
{%- if message.role == 'assistant' and message.reasoning_content %}
{{- '<think>\n' ~ message.reasoning_content ~ '\n</think>\n\n' }}
{%- endif %}
{{- message.content }}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}
{%- set arguments = call.function.arguments | tojson %}
{{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ arguments ~ '}\n</tool_call>' }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- set last = messages[-1] %}
{%- if last.role == 'tool' %}{{- '⟦answer⟧' }}
"""


def trigger(name):
    """The special token that starts a script."""
    return f"⟦{name}⟧"


def byte_symbols():
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def split_into_new_pieces(text, used, rng):
    """Pieces of 2..7 bytes, none of them in `used` or twice: a random depth-first search."""
    data = text.encode()
    dead = set()

    def search(at, mine):
        if at == len(data):
            return []
        sizes = list(range(2, 8))
        rng.shuffle(sizes)
        for size in sizes:
            piece = data[at:at + size]
            if at + size > len(data) or piece in used or piece in mine or (at + size) in dead:
                continue
            rest = search(at + size, mine | {piece})
            if rest is not None:
                return [piece, *rest]
        dead.add(at)
        return None

    for _ in range(100):
        dead.clear()
        pieces = search(0, set())
        if pieces is not None:
            used.update(pieces)
            return pieces
    raise AssertionError(f"no new pieces for {text!r}")


def chat_template():
    lines = [TEMPLATE_HEAD.strip("\n")]
    for name in [*SCRIPTS, "loop"]:
        opening = "<think>\\n" if name == OPENED else ""
        lines.append("{%- elif '[" + name + "]' in last.content %}{{- '" + opening + trigger(name) + "' }}")
    lines += ["{%- endif %}", "{%- endif %}"]
    return "\n".join(lines)


def vocabulary():
    """(vocabulary of the BPE model, special tokens, next token of each script step)."""
    rng, used = random.Random(7), set()
    symbols = byte_symbols()
    vocab = {symbols[b]: b for b in range(256)}
    special = {}
    chains = {name: split_into_new_pieces(text, used, rng) for name, text in {**SCRIPTS, "loop": LOOP}.items()}
    ids = {}
    for piece in sorted(used):
        ids[piece] = len(vocab)
        vocab["".join(symbols[b] for b in piece)] = ids[piece]
    for token in ["<|im_start|>", "<|im_end|>", *map(trigger, chains)]:
        special[token] = len(vocab) + len(special)
    following = {}
    for name, pieces in chains.items():
        steps = [special[trigger(name)], *(ids[p] for p in pieces)]
        following.update(zip(steps, steps[1:]))
        if name == "loop":
            following[steps[-1]] = steps[1]
    return vocab, special, following


def weights(n_vocab, eos, following, hidden=128):
    codes = numpy.random.default_rng(3).choice([-1.0, 1.0], size=(n_vocab, hidden))
    embedding = numpy.repeat(codes[:1], n_vocab, axis=0)
    head = numpy.zeros((n_vocab, hidden))
    head[eos] = codes[0]
    for step, after in following.items():
        embedding[step] = codes[step]
        head[after] += codes[step]
    scores = embedding @ head.T
    best = scores.argmax(axis=1)
    assert all(best[i] == following.get(i, eos) for i in range(n_vocab))
    top = numpy.sort(scores, axis=1)
    assert (top[:, -1] - top[:, -2]).min() > hidden / 4, "codes too close"
    layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden),
             "self_attn.v_proj": (hidden, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (hidden, hidden), "mlp.up_proj": (hidden, hidden), "mlp.down_proj": (hidden, hidden)}
    tensors = {f"model.layers.0.{name}.weight": numpy.zeros(shape) for name, shape in layer.items()}
    for name in ["model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"]:
        tensors[f"{name}.weight"] = numpy.ones(hidden)
    tensors |= {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    return {name: values.astype(numpy.float32) for name, values in tensors.items()}


def write_checkpoint(folder):
    """Writes config, tokenizer, template and weights; returns nothing that the server does not read from there."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab, special, following = vocabulary()
    n_vocab, eos = len(vocab) + len(special), special["<|im_end|>"]
    save_file(weights(n_vocab, eos, following), folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
              "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
              "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "max_position_embeddings": 65536, "vocab_size": n_vocab, "tie_word_embeddings": False,
              "eos_token_id": eos, "torch_dtype": "float32"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for text, i in special.items()]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": False, "vocab": vocab, "merges": []}}
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "bos_token": None,
                        "add_bos_token": False, "clean_up_tokenization_spaces": False}
    for name, value in {"config.json": config, "tokenizer.json": tokenizer,
                        "tokenizer_config.json": tokenizer_config}.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(chat_template(), encoding="utf-8")


if __name__ == "__main__":
    write_checkpoint(sys.argv[1])
