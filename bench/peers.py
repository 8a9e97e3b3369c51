#!/usr/bin/env python3
"""Speed beside llama.cpp: same model file, same tokens, same threads, interleaved in one run.

    bench/peers.py [--model FILE.gguf] [--pairs 5] [--threads N] [--prefill 512] [--decode 64] [--json OUT]

The peer is llama.cpp through PyPI's llama-cpp-python, built from source for this machine with AMX off (its AMX path
fails silently under GCC 12), in a virtual environment of its own under build/. Prints medians, spread and ratios.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "peers-venv"
PEER = "llama-cpp-python==0.3.36"
PEER_FLAGS = "-DGGML_NATIVE=ON -DGGML_AMX_INT8=OFF -DGGML_AMX_TILE=OFF -DGGML_AMX_BF16=OFF -DLLAVA_BUILD=OFF"

# Runs inside the peer's environment: one JSON line with tokens a second.
PEER_SCRIPT = """
import json, sys, time
from llama_cpp import Llama
model, threads, prefill, decode = sys.argv[1], *map(int, sys.argv[2:5])
llm = Llama(model, n_ctx=prefill + decode + 16, n_batch=prefill, n_ubatch=prefill, n_threads=threads,
            n_threads_batch=threads, logits_all=False, verbose=False)
tokens = [1 + (i * 7919) % 40000 for i in range(prefill)]
def once():
    llm.reset()
    t0 = time.perf_counter(); llm.eval(tokens); t1 = time.perf_counter()
    for i in range(decode):
        llm.eval([1 + (i * 104729) % 40000])
    t2 = time.perf_counter()
    return prefill / (t1 - t0), decode / (t2 - t1)
once()
p, d = once()
print(json.dumps({"prefill_tps": p, "decode_tps": d}))
"""


def ensure_peer():
    python = VENV / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode == 0:
        return python
    print("Building llama.cpp for this machine (a few minutes)…", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    env = dict(os.environ, CMAKE_ARGS=PEER_FLAGS, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))
    subprocess.run([VENV / "bin" / "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", PEER], check=True, env=env)
    return python


def last_json(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--json")
    args = parser.parse_args()
    model = args.model or subprocess.run([ROOT / "tools" / "fetch_model.sh"], check=True, capture_output=True,
                                         text=True).stdout.strip().splitlines()[-1]
    python = ensure_peer()
    numbers = list(map(str, (args.threads, args.prefill, args.decode)))
    ours_command = [ROOT / "build/release/bin/kvasir", "bench", model, "--threads", numbers[0], "--prefill", numbers[1],
                    "--decode", numbers[2], "--runs", "1", "--json"]
    peer_command = [python, "-c", PEER_SCRIPT, model, *numbers]

    pairs = []
    for i in range(args.pairs):
        ours, peer = last_json(ours_command), last_json(peer_command)
        pairs.append((ours, peer))
        print(f"pair {i + 1}: " + "  ".join(f"{k} {ours[k]:.1f} vs {peer[k]:.1f}" for k in ("prefill_tps", "decode_tps")))
    summary = {"model": pathlib.Path(model).name, "threads": args.threads, "prefill": args.prefill, "decode": args.decode}
    print(f"\n{'':12}{'kvasir':>12}{'llama.cpp':>12}{'ratio':>8}   (median of {len(pairs)}; ratio min–max)")
    for key, label in (("prefill_tps", "prefill"), ("decode_tps", "decode")):
        ratios = [ours[key] / peer[key] for ours, peer in pairs]
        median = [statistics.median(side[key] for side in sides) for sides in zip(*pairs)]
        summary[label] = {"kvasir_tps": median[0], "llama_cpp_tps": median[1], "ratio": statistics.median(ratios)}
        print(f"{label:12}{median[0]:12.1f}{median[1]:12.1f}{statistics.median(ratios):8.2f}   ({min(ratios):.2f}–{max(ratios):.2f})")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
