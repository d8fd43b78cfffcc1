#!/bin/sh
# Runs every benchmark program of the release build; a table on the terminal, JSON in build/bench.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/bench
for program in build/release/bin/*_benchmark; do
  "$program" --benchmark_out="build/bench/$(basename "$program").json" --benchmark_out_format=json
done
.venv/bin/python -W ignore benchmarks/comm/allreduce.py --json build/bench/comm_allreduce.json
.venv/bin/python -W ignore benchmarks/engine/ddp_step.py --json build/bench/engine_ddp_step.json
tests/ranks/mpirun.sh .venv/bin/mpirun 2 build/release/bin/server_throughput 45 20 |
  tee build/bench/server_throughput.json
.venv/bin/python benchmarks/report.py --json build/bench/report.json
benchmarks/plan.py --isochron build/release/bin/isochron --rounds 3 --bound 2
