#!/usr/bin/env bash
# Tests of the web chat in Debian's chromium.
#   tests/web/run.sh [--url http://127.0.0.1:8080] [--shots DIR] [more of pytest's options]
# Without --url only the scripted server is used: no model, no kvasir binary needed.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v chromium >/dev/null && [ -z "${CHROMIUM:-}" ]; then
  echo "chromium is missing: apt-get install chromium (or set CHROMIUM)" >&2
  exit 1
fi
venv=build/web-venv
if ! cmp -s tests/web/requirements.txt "$venv/requirements.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/web/requirements.txt
  cp tests/web/requirements.txt "$venv/requirements.txt"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider -c tests/web/pytest.ini tests/web "$@"
