#!/usr/bin/env python3
"""From the start of the process to the first answer, with a warm page cache: seconds until `kvasir serve` says that it is
healthy, and until `kvasir generate` has its first token. Two binaries are measured in turns.

    bench/startup.py [--model FILE] [--runs 9] [--bin build/release/bin/kvasir] [--before OTHER_BINARY]
"""
import argparse
import http.client
import pathlib
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_healthy(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def serve_s(binary, model):
    port = free_port()
    begin = time.perf_counter()
    process = subprocess.Popen([binary, "serve", model, "--port", str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not is_healthy(port):
        if process.poll() is not None:
            raise SystemExit(f"{binary} serve ended with {process.returncode}")
        time.sleep(0.002)
    seconds = time.perf_counter() - begin
    process.terminate()
    process.wait()
    return seconds


def generate_s(binary, model):
    begin = time.perf_counter()
    process = subprocess.Popen([binary, "generate", model, "-p", "Hello", "-n", "16", "--temp", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    process.stdout.read(1)
    seconds = time.perf_counter() - begin
    process.stdout.read()
    process.wait()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--bin", default=str(ROOT / "build" / "release" / "bin" / "kvasir"))
    parser.add_argument("--before", help="another binary, measured in turns")
    args = parser.parse_args()
    model = args.model or subprocess.run([ROOT / "tools" / "fetch_model.sh"], check=True, capture_output=True,
                                         text=True).stdout.strip().splitlines()[-1]
    binaries = [args.bin] + ([args.before] if args.before else [])
    for binary in binaries:
        generate_s(binary, model)  # the page cache
    times = {(b, m.__name__): [] for b in binaries for m in (serve_s, generate_s)}
    for _ in range(args.runs):
        for binary in binaries:
            for measure in (serve_s, generate_s):
                times[binary, measure.__name__].append(measure(binary, model))
    for (binary, name), seconds in times.items():
        what = "healthy server" if name == "serve_s" else "first token"
        print(f"{what:15} median {statistics.median(seconds):.3f} s ({min(seconds):.3f}–{max(seconds):.3f})  {binary}")


if __name__ == "__main__":
    main()
