"""What every peer's worker shares. A worker loads one model once, then answers a line of JSON with a line of JSON:
{"prefill": 512, "decode": 48, "rows": 1, "salt": 3}  ->  {"prefill_tps": …, "decode_tps": …}, tokens a second of all
rows together. `salt` makes prompts differ, so that nobody's prefix cache answers."""
import json
import os
import sys


def prompt(job, vocab):
    return [(1 + job["salt"] * 1299709 + i * 7919) % (vocab - 8) for i in range(job["prefill"])]


def rates(job, prefill_s, decode_s):
    return {"prefill_tps": job["rows"] * job["prefill"] / prefill_s, "decode_tps": job["rows"] * job["decode"] / decode_s}


def serve(measure):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = measure(json.loads(line))
        except Exception as error:  # noqa: BLE001 (the other side prints it and goes on)
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
