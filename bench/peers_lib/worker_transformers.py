"""transformers behind the protocol of worker.py: `worker_transformers.py FOLDER eager|compiled`.

bf16 on the first GPU, PyTorch's scaled-dot-product attention. Eager: a cache that grows. Compiled: a static cache and a
decode step under torch.compile("reduce-overhead"), which captures it as a graph; the first question of a shape compiles.
"""
import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

import worker

folder, is_compiled = sys.argv[1], sys.argv[2] == "compiled"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").to("cuda").eval()
vocab = model.config.vocab_size
decode_forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True) if is_compiled else model.forward
warm_shapes = set()


def cache_of(job):
    if not is_compiled:
        return DynamicCache(config=model.config)
    return StaticCache(config=model.config, max_cache_len=job["prefill"] + job["decode"])


def synchronized():
    torch.cuda.synchronize()
    return time.perf_counter()


@torch.inference_mode()
def run(job):
    cache = cache_of(job)
    n_rows, n_prefill = job["rows"], job["prefill"]
    prompt = torch.tensor([worker.prompt(job, vocab)] * n_rows, device="cuda")
    position = torch.arange(n_prefill, device="cuda").unsqueeze(0)
    begin = synchronized()
    out = model(prompt, past_key_values=cache, position_ids=position, use_cache=True, logits_to_keep=1)
    token = out.logits[:, -1:].argmax(-1)
    prefilled = synchronized()
    for step in range(job["decode"]):
        position = torch.tensor([[n_prefill + step]], device="cuda")
        out = decode_forward(token, past_key_values=cache, position_ids=position, use_cache=True)
        token = out.logits[:, -1:].argmax(-1).clone()
    end = synchronized()
    return worker.rates(job, prefilled - begin, end - prefilled)


def measure(job):
    shape = (job["prefill"], job["decode"], job["rows"])
    if shape not in warm_shapes:
        warm_shapes.add(shape)
        run({**job, "salt": 0})
    return run(job)


worker.serve(measure)
