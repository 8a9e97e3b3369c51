#!/usr/bin/env bash
# with_server.sh COMMAND…: starts a server on the demo model, runs the command with `--url http://…` added, stops the
# server with SIGTERM and fails if it did not end well or a sanitizer spoke.
# KVASIR_BIN: the binary (default the release build). SERVE_FLAGS: more flags of kvasir serve.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${KVASIR_BIN:-build/release/bin/kvasir}
model=$(tools/fetch_model.sh | tail -n 1)
log=$(mktemp)
"$binary" serve "$model" --port 0 ${SERVE_FLAGS:-} 2>"$log" &
server=$!
trap 'kill -TERM $server 2>/dev/null || true; rm -f "$log"' EXIT
url=
for _ in $(seq 600); do
  url=$(sed -n 's/^listening on \(http[^ ]*\).*/\1/p' "$log")
  [ -n "$url" ] && break
  kill -0 $server 2>/dev/null || { cat "$log"; exit 1; }
  sleep 0.1
done
"$@" --url "$url"
kill -TERM $server
ended=0
wait $server || ended=$?
if [ $ended -ne 0 ] || grep -E 'ERROR: (Address|Leak|Thread|Undefined)|runtime error' "$log"; then
  tail -n 60 "$log"
  echo "server: exit code $ended"
  exit 1
fi
