#!/usr/bin/env python3
"""Quality of products beside llama.cpp: `bench/quality.py MODEL.gguf [TEXT…] [-n 1024] [--threads N]`

The same tokens of the texts (default: this repository's README and docs/numerics.md), teacher-forced, in f32, by both
modes of --activations and by llama.cpp from the same weights; prints KL divergence from f32 and agreement of the most
likely token (docs/numerics.md). llama.cpp comes as in peers.py."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers_lib"))
import engines  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="*", default=[str(ROOT / "README.md"), str(ROOT / "docs" / "numerics.md")])
    parser.add_argument("-n", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    command = [engines.KVASIR, "verify", "activation-quality", args.model, "--threads", args.threads, "--backend", "cpu",
               "--tokens", args.n, "--text", *args.texts]
    peer = engines.LlamaCpp()
    reason = peer.install()
    if reason:
        print(f"llama.cpp: left out, {reason}")
        return subprocess.run([str(c) for c in command]).returncode
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(pathlib.Path(t).read_text() for t in args.texts)
        done = subprocess.run([engines.KVASIR, "tokenize", args.model, "-", "--no-special", "--json"],
                              check=True, capture_output=True, text=True, input=text, errors="replace")
        tokens = [piece["id"] for piece in json.loads(done.stdout)][: args.n]
        ids, logits = pathlib.Path(folder) / "tokens.json", pathlib.Path(folder) / "logits"
        ids.write_text(json.dumps(tokens))
        script = pathlib.Path(engines.LIB) / "logits_llama_cpp.py"
        subprocess.run([str(c) for c in (peer.python(), script, args.model, args.threads, ids, logits)], check=True)
        command += ["--logits", f"llama.cpp {peer.version()}={logits}"]
        return subprocess.run([str(c) for c in command]).returncode


if __name__ == "__main__":
    sys.exit(main())
