#!/usr/bin/env bash
# Fails when a source file is not as clang-format (14) would write it, or is longer than 600 lines.
set -euo pipefail
cd "$(dirname "$0")/.."
files=$(git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' ':!tests/rooms')
clang-format --dry-run --Werror $files
long=$(wc -l $files | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines" }')
[ -z "$long" ] || { echo "longer than 600 lines: $long"; exit 1; }
