#!/usr/bin/env bash
# Installs the Debian packages the build and the tests need. Idempotent: says what is missing, installs only that.
#   tools/setup.sh           what building and running needs
#   tools/setup.sh --test    also what `make test` needs
set -euo pipefail

build=(g++ cmake ninja-build make ccache pkg-config python3 python3-venv ca-certificates
       libfmt-dev libspdlog-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev liblzma-dev
       libboost1.81-dev libcurl4-openssl-dev libssl-dev libsqlite3-dev)
test=(libgtest-dev libgmock-dev clang clang-format clang-tidy libclang-rt-14-dev xz-utils git
      chromium fonts-dejavu-core)

wanted=("${build[@]}")
[ "${1:-}" = "--test" ] && wanted+=("${test[@]}")

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

echo "Installing Debian packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "error: run as root, install sudo, or install these yourself: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "Installed."
