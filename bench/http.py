#!/usr/bin/env python3
"""One stream through HTTP beside the library itself, interleaved in one run.

    bench/http.py [--model FILE.gguf] [--pairs 7] [--tokens 256] [--json OUT]

Both sides write the same greedy tokens to a reader in this process: `kvasir generate` through a pipe, `kvasir serve`
through a socket. Prints tokens a second of both, the ratio of each pair, and the gaps between pieces: what HTTP adds
to the median and to the 99th percentile.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "Tell a long story about a lighthouse."


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def rate_and_gaps(stamps):
    gaps = [b - a for a, b in zip(stamps, stamps[1:])]
    return (len(stamps) - 1) / (stamps[-1] - stamps[0]), gaps


def direct(binary, model, n):
    command = [binary, "generate", model, "-p", PROMPT, "-n", str(n), "--temp", "0", "--ignore-eos"]
    stamps = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        fd = process.stdout.fileno()
        while os.read(fd, 65536):
            stamps.append(time.perf_counter())
    return rate_and_gaps(stamps[:-1])  # the last piece is the newline at the end


def through_http(port, n):
    body = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": n, "temperature": 0,
                       "ignore_eos": True, "stream": True, "cache": False}).encode()
    stamps = []
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n"
                  b"Connection: close\r\n\r\n%s" % (len(body), body))
        while piece := s.recv(65536):
            if b'"content":"' in piece and b'"role"' not in piece:
                stamps.append(time.perf_counter())
    return rate_and_gaps(stamps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--binary", default=str(ROOT / "build" / "release" / "bin" / "kvasir"))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json")
    args = parser.parse_args()

    server = subprocess.Popen([args.binary, "serve", args.model, "--port", "0"], stderr=subprocess.PIPE, text=True)
    port = None
    for line in server.stderr:
        if found := re.search(r"listening on http://[^:]+:(\d+)", line):
            port = int(found[1])
            break
    if port is None:
        sys.exit("the server did not start")
    try:
        through_http(port, args.tokens)
        pairs = []
        for i in range(args.pairs):
            sides = {}
            for side in (("direct", "http") if i % 2 == 0 else ("http", "direct")):
                sides[side] = direct(args.binary, args.model, args.tokens) if side == "direct" \
                    else through_http(port, args.tokens)
            pairs.append(sides)
    finally:
        server.terminate()
        server.wait()
    ratios = [p["http"][0] / p["direct"][0] for p in pairs]
    gaps = {side: [g * 1e3 for p in pairs for g in p[side][1]] for side in ("direct", "http")}
    report = {"pairs": args.pairs, "tokens": args.tokens}
    for side in ("direct", "http"):
        report[side] = {"tokens_per_second": round(statistics.median(p[side][0] for p in pairs), 2),
                        "gap_ms_p50": round(percentile(gaps[side], 0.5), 3),
                        "gap_ms_p99": round(percentile(gaps[side], 0.99), 3)}
    report["ratio"] = {"median": round(statistics.median(ratios), 4), "min": round(min(ratios), 4),
                       "max": round(max(ratios), 4)}
    report["added_ms"] = {p: round(report["http"][f"gap_ms_{p}"] - report["direct"][f"gap_ms_{p}"], 3)
                          for p in ("p50", "p99")}
    print(f"one stream, {args.tokens} tokens, {args.pairs} pairs: direct {report['direct']['tokens_per_second']} tok/s, "
          f"HTTP {report['http']['tokens_per_second']} tok/s, ratio {report['ratio']['median']} "
          f"({report['ratio']['min']} to {report['ratio']['max']})")
    print(f"gap between pieces, ms: direct p50 {report['direct']['gap_ms_p50']} p99 {report['direct']['gap_ms_p99']}, "
          f"HTTP p50 {report['http']['gap_ms_p50']} p99 {report['http']['gap_ms_p99']}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
