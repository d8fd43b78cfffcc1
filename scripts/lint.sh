#!/bin/sh
# Checks everything that can be checked without running the program. Needs a configured build/dev.
set -u
cd "$(dirname "$0")/.."
failed=0

check() {
  name=$1
  shift
  start=$(date +%s)
  if "$@"; then
    echo "ok     $name, $(($(date +%s) - start)) s"
  else
    echo "FAILED $name"
    failed=$((failed + 1))
  fi
}

check format scripts/lint/format.sh
check tree scripts/lint/tree.py
check layers scripts/lint/layers.py
check mutations scripts/mutate.py --check
check headers scripts/lint/headers.py
check types .venv/bin/mypy
check tidy scripts/lint/tidy.py
[ "$failed" = 0 ]
