#!/usr/bin/env bash
# gpu.sh [GOLDENS]: builds, verifies and measures the CUDA backend on this machine; writes bench/results/gpu-NAME.json.
# GOLDENS: a folder of reference checkpoints (default: build/dev/goldens, else the few of tests/data/models); "none": speeds alone. Random weights of named shapes, limits measured beside each speed.
# KVASIR_BIN: a binary that is built already. BACKEND: cuda. SHAPES: "name:quant:prefill:decode:rows[:requests[:kv]] …",
# requests: served once as they come, rows at a time; kv: as --kv-quant, from the first token on.
# MODELS: a folder where the models are kept. RUNS: 3, of which medians are taken.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${KVASIR_BIN:-}
backend=${BACKEND:-cuda}
shapes=${SHAPES:-"qwen3-0.6b:4:512:128:1 llama-3.1-8b:bf16:512:128:1 llama-3.1-8b:bf16:4096:64:1 llama-3.1-8b:bf16:2048:32:64 llama-3.1-8b:bf16:2048:32:64:0:8 llama-3.1-8b:bf16:1024:256:64:256 llama-3.1-8b:4:512:128:1 llama-3.1-8b:bf16:32768:8:1"}
if [ -z "$binary" ]; then
  cmake --preset release -DKVASIR_CUDA=ON >/dev/null
  cmake --build --preset release -j "$(nproc)" --target kvasir
  binary=build/release/bin/kvasir
fi
goldens=${1:-build/dev/goldens}
[ $# -gt 0 ] || [ -d "$goldens" ] || goldens=tests/data/models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$goldens" != none ]; then
  "$binary" verify goldens "$goldens" --backend "$backend"
  for model in llama-hd128 gemma3-hd64 qwen3_5-hd64; do
    [ -d "$goldens/$model" ] || continue
    for quant in off 8 4 turbo; do
      echo "same bits: $model, --kv-quant $quant"
      "$binary" verify same-bits "$goldens/$model" --backend "$backend" --kv-quant $quant | tail -n 1
    done
  done
fi

lines=$work/lines
for shape in $shapes; do
  IFS=: read -r name quant prefill decode rows requests kv <<<"$shape"
  model=${MODELS:-$work}/$name-$quant
  [ -e "$model" ] || "$binary" synth --config "$name" --quant "$quant" "$model"
  "$binary" bench "$model" --backend "$backend" --max-step-tokens "$prefill" --prefill "$prefill" --decode "$decode" \
    --rows "$rows" --requests "${requests:-0}" --kv-quant "${kv:-off}" --quantized-kv-start eager --runs "${RUNS:-3}" --json | tee -a "$lines"
done
name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr 'A-Z ' 'a-z-' || true)
mkdir -p bench/results
out=bench/results/gpu-${name:-none}.json
{ echo '['; paste -sd, "$lines"; echo ']'; } >"$out"
echo "$out"
