#!/usr/bin/env bash
# run.sh SCRIPT.py [OPTIONS…]: starts a server on the demo model (KVASIR_BIN, default the release build), runs the script
# against it on loopback, and stops it again. SERVE_FLAGS: more flags of kvasir serve.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${KVASIR_BIN:-build/release/bin/kvasir}
model=$(tools/fetch_model.sh | tail -n 1)
log=$(mktemp)
"$binary" serve "$model" --port 0 --batch 32 --queue 256 ${SERVE_FLAGS:-} 2>"$log" &
server=$!
trap 'kill -TERM $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -f "$log"' EXIT
url=
for _ in $(seq 600); do
  url=$(sed -n 's/^listening on \(http[^ ]*\).*/\1/p' "$log")
  [ -n "$url" ] && break
  kill -0 $server || { cat "$log"; exit 1; }
  sleep 0.1
done
python3 tests/load/"$1" --url "$url" "${@:2}"
kill -TERM $server
wait $server
grep -E 'ERROR: (Address|Leak|Undefined)|runtime error' "$log" && exit 1
echo "server: exit 0 after SIGTERM, no sanitizer report"
