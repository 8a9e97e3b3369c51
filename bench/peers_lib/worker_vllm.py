"""vLLM's CPU backend behind the protocol of worker.py: `worker_vllm.py FOLDER THREADS`."""
import os
import sys
import time

n_threads = int(sys.argv[2])
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{n_threads - 1}"
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
from vllm import LLM, SamplingParams  # noqa: E402 (after its environment)

import worker  # noqa: E402

llm = LLM(sys.argv[1], dtype="bfloat16", max_model_len=6144, enable_prefix_caching=False, enforce_eager=True, max_num_seqs=16)
VOCAB = 40000


def timed(job, n_tokens, salt):
    prompts = [{"prompt_token_ids": worker.prompt({**job, "salt": salt + row}, VOCAB)} for row in range(job["rows"])]
    sampling = SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True)
    begin = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return time.perf_counter() - begin


def measure(job):
    prefill_s = timed(job, 1, job["salt"] * 128)
    all_s = timed(job, job["decode"] + 1, job["salt"] * 128 + 64)
    return worker.rates(job, prefill_s, max(all_s - prefill_s, 1e-9))


worker.serve(measure)
