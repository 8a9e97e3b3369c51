#!/usr/bin/env bash
# Tests of a running server with the clients people use: openai, anthropic, litellm, langchain-openai, ollama.
#   tests/clients/run.sh [--url http://127.0.0.1:8080] [more of pytest's options]
# The binary: $KVASIR_BIN, else the release build, else the dev build. Without --url the server of the demo model is
# started here; the servers with other flags, and the one of the scripted model, always are. Loopback only.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=build/clients-venv
if ! cmp -s tests/clients/requirements.txt "$venv/requirements.txt"; then
  mkdir -p build
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
  cp tests/clients/requirements.txt "$venv/requirements.txt"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m pytest -c tests/clients/pytest.ini tests/clients "$@"
