#!/usr/bin/env python3
"""Memory at full load beside what `kvasir fit` predicts (docs/fit.md).

    bench/memory.py [MODEL MEMORY_BUDGET]…

Each model is served with that --memory-budget and asked until its KV pool has been full: rows of different
prompts, as many at once as --batch, whose state the prefix cache then keeps. Meanwhile the anonymous and
shared memory of the process (/proc/PID/smaps_rollup) is read; its peak is compared with `full_bytes` of
/fit. Without arguments: the demo model.

KVASIR_BIN: the binary (default build/release/bin/kvasir). SERVE_FLAGS: more flags of kvasir serve.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("KVASIR_BIN", str(ROOT / "build/release/bin/kvasir"))
BATCH = 8
TOLERANCE = 0.05
FULL = 0.97  # of the pool: what is free is part of the last blocks


def resident_bytes(pid):
    total = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Anonymous:", "Pss_Shmem:")):
            total += int(line.split()[1]) * 1024
    return total


class Server:
    def __init__(self, model, budget):
        flags = os.environ.get("SERVE_FLAGS", "").split()
        self.process = subprocess.Popen(
            [BINARY, "serve", model, "--port", "0", "--batch", str(BATCH), "--memory-budget", budget, *flags],
            stderr=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stderr:
            if found := re.match(r"listening on (\S+)", line):
                self.url = found[1]
                break
        if not self.url:
            sys.exit(f"{model}: the server did not start (exit code {self.process.wait()})")
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as reply:
            return json.load(reply)

    def complete(self, prompt, n_tokens):
        body = {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0.8, "ignore_eos": True,
                "logprobs": 5}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Peak(threading.Thread):
    """The most that the process held, and the fullest its pool was, read some times a second."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.most, self.fullest, self.is_over = server, 0, 0.0, False
        self.start()

    def run(self):
        while not self.is_over:
            self.most = max(self.most, resident_bytes(self.server.process.pid))
            kv = self.server.get("/stats")["kv"]
            self.fullest = max(self.fullest, kv["used_bytes"] / kv["total_bytes"])
            time.sleep(0.1)

    def take(self):
        self.is_over = True
        self.join()
        return self.most


def fill(server, fit, peak):
    """Requests of different prompts until the pool has been full: a round of them is a little more than it holds."""
    rng = random.Random(7)
    pool_tokens = fit["kv_budget_bytes"] * fit["context"] // fit["kv_bytes"]
    length = max(1, min(fit["max_context"] - 16, pool_tokens // BATCH + 16))
    with concurrent.futures.ThreadPoolExecutor(BATCH) as pool:
        for _ in range(1000):
            prompts = [[rng.randrange(3, 200) for _ in range(length)] for _ in range(BATCH)]
            list(pool.map(lambda prompt: server.complete(prompt, 8), prompts))
            if peak.fullest >= FULL:
                return
    sys.exit("the KV pool does not fill")


def measure(model, budget):
    server = Server(with_tokenizer(model), budget)
    try:
        fit = server.get("/fit")
        peak = Peak(server)
        fill(server, fit, peak)
        measured = peak.take()
    finally:
        server.stop()
    return fit, measured


def with_tokenizer(folder):
    """A folder without a tokenizer, such as the reference checkpoints', linked beside one of a token a byte."""
    source = pathlib.Path(folder)
    if source.is_file() or any((source / name).exists() for name in ("tokenizer.json", "tokenizer.model")):
        return folder
    target = pathlib.Path(tempfile.mkdtemp(prefix="kvasir-memory-")) / source.name
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).symlink_to(file.resolve())
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b != 173]
    shifted = [b for b in range(256) if b not in plain]
    vocab = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(shifted)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    (target / "tokenizer.json").write_text(json.dumps(
        {"added_tokens": [], "pre_tokenizer": level, "decoder": level,
         "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    return str(target)


def megabytes(n):
    return f"{n / 1e6:.1f}"


def main(arguments):
    if not arguments:
        demo = subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, capture_output=True, text=True)
        arguments = [demo.stdout.splitlines()[-1], "1GB"]
    print("| model | scheme | weights | fixed | one step | KV pool | predicted | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    is_close = True
    for model, budget in zip(arguments[::2], arguments[1::2]):
        fit, measured = measure(model, budget)
        predicted = fit["full_bytes"]
        step = predicted - fit["weights_bytes"] - fit["fixed_bytes"] - fit["kv_budget_bytes"]
        parts = [fit["weights_bytes"], fit["fixed_bytes"], step, fit["kv_budget_bytes"], predicted, measured]
        ratio = measured / predicted
        is_close &= abs(ratio - 1) <= TOLERANCE
        print("| " + " | ".join([fit["model"], fit["scheme"], *map(megabytes, parts), f"{ratio:.3f}"]) + " |", flush=True)
    return 0 if is_close else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
