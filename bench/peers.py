#!/usr/bin/env python3
"""Speed beside other engines: same models, same tokens, same threads, interleaved in one run.

    bench/peers.py [--models smollm2-135m,qwen3-0.6b,llama-3.2-1b] [--quants 4,8,bf16] [--cases prefill512,decode,…]
                   [--peers kvasir-int8,llama.cpp,openvino,mlx,vllm] [--pairs 5] [--threads N] [--json FILE] [--page [PLACE]]
                   [--site DIR] [--read FILE ...]

kvasir-int8 is Kvasir with --activations int8, beside its default. Peers come from PyPI into virtual environments of their own under build/; one that cannot be installed or cannot read a
model is left out, with the reason. SmolLM2 has its real weights, the other models are random ones of the published
shapes (`kvasir synth`), written once under models/. Every engine loads a model once and is then asked case by case, in
turns, so that what disturbs the machine disturbs all alike. Prints medians, ratios and their spread; --json keeps every
number (default bench/results/peers-HOST.json); --site takes peers from DIR/NAME and installs nothing (a machine without
network); --read measures nothing, but puts together what runs on one machine wrote; --page draws the plot and writes the
tables of docs/performance.md, with a PLACE there the one table of another machine.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers_lib"))
import engines  # noqa: E402
import page  # noqa: E402

CASES = {
    "prefill512": {"prefill": 512, "decode": 1, "rows": 1, "value": "prefill_tps"},
    "decode": {"prefill": 16, "decode": 48, "rows": 1, "value": "decode_tps"},
    "depth4096": {"prefill": 4096, "decode": 24, "rows": 1, "value": "decode_tps"},
    "depth16384": {"prefill": 16384, "decode": 16, "rows": 1, "value": "decode_tps"},
    "rows16": {"prefill": 16, "decode": 24, "rows": 16, "value": "decode_tps"},
}
QUANTS = {"4": "q4_0", "8": "q8_0", "bf16": "bf16"}


def model_files(name, quant):
    """The forms of one model: a GGUF for most, a folder for those that read none."""
    if name == "smollm2-135m":
        if quant != "4":
            return None  # the real file is Q4_1
        path = subprocess.run([ROOT / "tools" / "fetch_model.sh"], check=True, capture_output=True, text=True).stdout
        return {"gguf": path.strip().splitlines()[-1]}
    models = ROOT / "models"
    models.mkdir(exist_ok=True)
    forms = {"gguf": (models / f"{name}-random-{QUANTS[quant]}.gguf", QUANTS[quant]), "folder": (models / f"{name}-random-{quant}", quant)}
    if quant == "bf16":
        forms["gguf16"] = (models / f"{name}-random-f16.gguf", "f16")  # OpenVINO reads no bf16
    for path, form in forms.values():
        if not path.exists():
            subprocess.run([engines.KVASIR, "synth", "--config", name, "--quant", form, path], check=True)
    return {form: str(path) for form, (path, _) in forms.items()}


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def measure(model, quant, files, args, samples):
    """Adds {model, quant, case, pair, engine, prefill_tps, decode_tps, …}, pair by pair."""
    running = []
    for engine in args.engines:
        worker = engine.start(files, args.threads)
        print(f"  {engine.name}: " + (f"left out, {worker}" if isinstance(worker, str) else "ready"), flush=True)
        if not isinstance(worker, str):
            running.append((engine, worker))
    for _, worker in running:
        worker.ask({"prefill": 64, "decode": 4, "rows": 1, "salt": 0})
    for pair in range(args.pairs):
        for case in args.cases:
            for i in range(len(running)):
                engine, worker = running[(i + pair) % len(running)]  # nobody is always first
                answer = worker.ask({**CASES[case], "salt": 1 + pair})
                if "error" in answer:
                    print(f"  {engine.name} {case}: {answer['error']}", flush=True)
                    continue
                samples.append({**answer, "model": model, "quant": quant, "case": case, "pair": pair, "engine": engine.name})
        print(f"  pair {pair + 1} of {args.pairs}", flush=True)
        yield
    for _, worker in running:
        worker.stop()


def summarize(samples):
    """Median of each engine, and the ratio of ours to it within each pair, in both modes where both ran."""
    rows = []
    for key in dict.fromkeys((s["model"], s["quant"], s["case"]) for s in samples):
        value = CASES[key[2]]["value"]
        of = {}
        for s in samples:
            if (s["model"], s["quant"], s["case"]) == key:
                of.setdefault(s["engine"], {})[s["pair"]] = s
        for engine, by_pair in of.items():
            row = {"model": key[0], "quant": key[1], "case": key[2], "engine": engine,
                   "tps": statistics.median(s[value] for s in by_pair.values()), "n": len(by_pair)}
            for field, name in (("ratio", "kvasir"), ("ratio_int8", "kvasir-int8")):
                ours = of.get(name, {})
                ratios = [ours[p][value] / s[value] for p, s in by_pair.items() if p in ours]
                if ratios and engine != name:
                    row[field] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
            if engine == "kvasir":
                phase = "prefill" if value == "prefill_tps" else "decode"
                for share in ("share_of_read", "share_of_float"):
                    row[share] = statistics.median(s[phase][share] for s in by_pair.values())
            rows.append(row)
    return rows


def print_rows(rows):
    def text(ratio):
        return f"{ratio['median']:9.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})" if ratio else ""

    print(f"\n{'model':14}{'weights':9}{'case':12}{'engine':14}{'tok/s':>10}   ours ÷ it (min–max of the pairs), ours with int8 ÷ it")
    for r in rows:
        print(f"{r['model']:14}{r['quant']:9}{r['case']:12}{r['engine']:14}{r['tps']:10.1f}{text(r.get('ratio')):>22}{text(r.get('ratio_int8')):>22}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2-135m,qwen3-0.6b,llama-3.2-1b")
    parser.add_argument("--quants", default="4,8,bf16")
    parser.add_argument("--cases", default="prefill512,decode,depth4096,rows16")
    parser.add_argument("--peers", default=",".join(engines.PEERS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / f"peers-{platform.node()}.json"))
    parser.add_argument("--page", nargs="?", const="main")
    parser.add_argument("--site", type=pathlib.Path)
    parser.add_argument("--read", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    if args.read:
        return args
    engines.site = args.site and args.site.resolve()
    args.cases = args.cases.split(",")
    args.engines = [engines.Kvasir()]
    for name in args.peers.split(","):
        if not name:
            continue
        engine = engines.PEERS[name]()
        reason = engine.install()
        if reason:
            print(f"{name}: left out, {reason}")
        else:
            args.engines.append(engine)
    return args


def measured(args):
    result = {"cpu": cpu_name(), "threads": args.threads, "pairs": args.pairs, "date": time.strftime("%Y-%m-%d"),
              "engines": {e.name: e.version() for e in args.engines}, "cases": {c: CASES[c] for c in args.cases}, "samples": []}
    for model in args.models.split(","):
        for quant in args.quants.split(","):
            files = model_files(model, quant)
            if not files:
                continue
            print(f"{model}, {quant}:", flush=True)
            for _ in measure(model, quant, files, args, result["samples"]):
                save(args.json, result)  # what is there outlives a run that is cut off
    return result


def save(path, result):
    result["summary"] = summarize(result["samples"])
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(json.dumps(result, indent=1) + "\n")


def read(files):
    """One result of several: of one CPU and as many threads, each model's cases from one of them."""
    parts = [json.loads(f.read_text()) for f in files]
    whole, pairs = parts[0], [part["pairs"] for part in parts]
    whole["pairs"] = min(pairs) if min(pairs) == max(pairs) else f"{min(pairs)} to {max(pairs)}"
    for part in parts[1:]:
        if (part["cpu"], part["threads"]) != (whole["cpu"], whole["threads"]):
            sys.exit(f"{part['cpu']}, {part['threads']} threads is another machine than {whole['cpu']}, {whole['threads']} threads")
        whole["engines"] |= part["engines"]
        whole["cases"] |= part["cases"]
        whole["samples"] += part["samples"]
    return whole


def main():
    args = parse()
    result = read(args.read) if args.read else measured(args)
    save(args.json, result)
    print_rows(result["summary"])
    if args.page:
        page.write(ROOT, result, engines.PLOT_PYTHON, args.page)


if __name__ == "__main__":
    main()
