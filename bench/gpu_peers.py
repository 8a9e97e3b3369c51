#!/usr/bin/env python3
"""Kvasir and transformers on one GPU: same weights, same prompts, in turns in one run.

    bench/gpu_peers.py FOLDER [--cases prefill4096,rows1,rows64] [--pairs 3] [--modes eager,compiled] [--json FILE]

FOLDER: a bf16 checkpoint that both read (`kvasir synth --config llama-3.1-8b --quant bf16 FOLDER`). Needs PyTorch and
transformers in this Python; a mode that does not run is left out, with the reason. KVASIR_BIN names another binary.
Prints medians and the ratios within each pair; --json keeps every number.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers_lib"))
import engines  # noqa: E402

CASES = {
    "prefill4096": {"prefill": 4096, "decode": 16, "rows": 1, "value": "prefill_tps"},
    "rows1": {"prefill": 512, "decode": 64, "rows": 1, "value": "decode_tps"},
    "rows64": {"prefill": 2048, "decode": 24, "rows": 64, "value": "decode_tps"},
}


class Kvasir:
    """A run of `kvasir bench` a question."""

    def __init__(self, folder, backend):
        self.folder, self.backend = folder, backend

    def ask(self, job):
        binary = os.environ.get("KVASIR_BIN", str(engines.KVASIR))
        command = [binary, "bench", self.folder, "--backend", self.backend, "--prefill", job["prefill"], "--decode", job["decode"],
                   "--rows", job["rows"], "--batch", job["rows"], "--max-step-tokens", max(2048, job["prefill"]), "--runs", 1, "--json"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode != 0:
            return {"error": done.stderr.strip()[-300:]}
        return json.loads(done.stdout.strip().splitlines()[-1])

    def stop(self):
        pass


def start(args):
    running = [("kvasir", Kvasir(args.folder, args.backend))]
    for mode in filter(None, args.modes.split(",")):
        worker = engines.Worker([sys.executable, engines.LIB / "worker_transformers.py", os.path.abspath(args.folder), mode])
        failed = worker.ready()
        print(f"transformers-{mode}: " + (f"left out, {failed}" if failed else "ready"), flush=True)
        if not failed:
            running.append((f"transformers-{mode}", worker))
    return running


def measure(args, running):
    samples = []
    for pair in range(args.pairs):
        for case in args.cases.split(","):
            for i in range(len(running)):
                name, worker = running[(i + pair) % len(running)]  # nobody is always first
                answer = worker.ask({**CASES[case], "salt": 1 + pair})
                if "error" in answer:
                    print(f"{name} {case}: {answer['error']}", flush=True)
                    continue
                samples.append({**answer, "case": case, "pair": pair, "engine": name})
    return samples


def print_summary(samples):
    for case in dict.fromkeys(s["case"] for s in samples):
        value = CASES[case]["value"]
        of = {}
        for s in samples:
            if s["case"] == case:
                of.setdefault(s["engine"], {})[s["pair"]] = s[value]
        for engine, by_pair in of.items():
            line = f"{case:12} {engine:22} {statistics.median(by_pair.values()):10.1f} tok/s"
            ratios = [of["kvasir"][p] / tps for p, tps in by_pair.items() if p in of.get("kvasir", {})]
            if engine != "kvasir" and ratios:
                line += f"   kvasir is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f}–{max(ratios):.2f})"
            print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--json")
    args = parser.parse_args()
    running = start(args)
    samples = measure(args, running)
    print_summary(samples)
    for _, worker in running:
        worker.stop()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    main()
