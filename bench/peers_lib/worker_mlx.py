"""mlx-lm on MLX's CPU backend behind the protocol of worker.py: `worker_mlx.py FOLDER THREADS`. MLX takes as many
threads as it wants; the process is bound to THREADS cores."""
import os
import sys
import time
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

import worker

os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[2])]))
mx.set_default_device(mx.cpu)
model, config = load_model(Path(sys.argv[1]))
VOCAB = config["vocab_size"]
CHUNK = 512


def measure(job):
    prompt = worker.prompt(job, VOCAB)
    tokens = mx.array([prompt] * job["rows"])
    cache = make_prompt_cache(model)
    begin = time.perf_counter()
    for at in range(0, job["prefill"], CHUNK):
        logits = model(tokens[:, at : at + CHUNK], cache=cache)[:, -1]
        mx.eval(logits)
    prefilled = time.perf_counter()
    for _ in range(job["decode"]):
        logits = model(mx.argmax(logits, axis=-1)[:, None], cache=cache)[:, -1]
        mx.eval(logits)
    return worker.rates(job, prefilled - begin, time.perf_counter() - prefilled)


worker.serve(measure)
