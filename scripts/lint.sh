#!/bin/sh
# lint.sh all | changed [BASE]: checks everything that can be checked without running the program, for all files or for
# those that differ from the base of the branch (origin/main, else main).
set -u
cd "$(dirname "$0")/.."
failed=0
mkdir -p build/log
cmake --preset dev -DISOCHRON_WERROR=ON -DISOCHRON_TESTS=ON -DISOCHRON_PYTHON=ON -DISOCHRON_BENCHMARKS=ON \
  --log-level=WARNING >build/log/configure.log 2>&1 || { cat build/log/configure.log; exit 1; }

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
check headers scripts/lint/headers.py "$@"
check types sh -c "cmake --build build/dev --target isochron_python >build/log/types.log && .venv/bin/mypy"
check tidy scripts/lint/tidy.py "$@"
[ "$failed" = 0 ]
