#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]: builds the fuzz targets with clang and runs each for SECONDS, starting from the committed
# corpus. Prints executions, edges covered and corpus size; fails on a finding.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true


targets=("$@")
# Of the whole server: entropic scheduling walks its large corpus at every execution, and threads that allocate meanwhile
# look like leaks to the check after each one. Leaks are still looked for at the end.
declare -A flags=([server_fuzz]="-entropic=0 -detect_leaks=0")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd build/fuzz/bin && ls -- *_fuzz)
for target in "${targets[@]}"; do
  seeds=tests/fuzz/corpus/${target%_fuzz}
  work=build/fuzz/corpus/$target
  mkdir -p "$work" "$seeds"
  log=build/fuzz/$target.log
  if ! build/fuzz/bin/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 ${flags[$target]:-} \
      -artifact_prefix="build/fuzz/$target-" "$work" "$seeds" >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "$target: FINDING, see $log"
    exit 1
  fi
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)
  echo "$target: $executions executions, $edges edges, corpus $(ls "$work" | wc -l) + $(ls "$seeds" | wc -l) seeds, 0 findings"
done
