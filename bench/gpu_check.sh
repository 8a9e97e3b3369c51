#!/usr/bin/env bash
# gpu_check.sh [GOLDENS]: compute-sanitizer (memcheck, then racecheck) over `verify goldens` of one small checkpoint a KV layout on
# this machine's GPU; prints the findings of each and fails where there are any.
# GOLDENS: a folder of reference checkpoints (default: build/dev/goldens, else the few of tests/data/models). KVASIR_BIN: the binary
# (default: build/release/bin/kvasir). LAYOUTS: "layout:checkpoint …". TOOLS: "memcheck racecheck". SECONDS_EACH: 300.
# Also FILTER with KVASIR_TEST_BIN (backend_cuda_test): the same over those tests.
set -uo pipefail
cd "$(dirname "$0")/.."
binary=${KVASIR_BIN:-build/release/bin/kvasir}
goldens=${1:-build/dev/goldens}
[ $# -gt 0 ] || [ -d "$goldens" ] || goldens=tests/data/models
tools=${TOOLS:-"memcheck racecheck"}
seconds=${SECONDS_EACH:-300}
first_of() { for name in "$@"; do [ -d "$goldens/$name" ] && echo "$name" && return; done; }
layouts=${LAYOUTS:-"paged:$(first_of llama-hd64 llama) windowed:$(first_of gemma3-hd64 gemma4) recurrent:$(first_of qwen3_5-hd64 qwen3_5) latent:$(first_of deepseek-v3 glm-moe-dsa)"}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# check NAME TOOL COMMAND…
check() {
  local name=$1 tool=$2 rc=0
  shift 2
  timeout "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1 || rc=$?
  local findings
  findings=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | tail -n 1)
  printf '%-10s %-10s findings %-6s exit %s\n' "$name" "$tool" "${findings:-unknown}" "$rc"
  if [ "$rc" -ne 0 ] || [ "${findings:-1}" -ne 0 ]; then
    failed=1
    grep -E '=========|FAIL|error' "$log" | head -n 20
  fi
}

for tool in $tools; do
  if [ -n "${KVASIR_TEST_BIN:-}" ]; then
    check tests "$tool" "$KVASIR_TEST_BIN" "--gtest_filter=${FILTER:-*}"
  fi
  for layout in $layouts; do
    [ -n "${layout#*:}" ] || continue
    check "${layout%%:*}" "$tool" "$binary" verify goldens "$goldens" --only "${layout#*:}" --backend cuda
  done
done
exit $failed
