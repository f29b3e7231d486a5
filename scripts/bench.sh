#!/usr/bin/env bash
# Runs the benchmarks and prints what they ran on. Figures, no gates: machines differ.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs), $(nproc) cores, $(uname -r)"
build/bin/headroom version | head -1
build/bin/bench_machine gpus build/bin/headroom build/lib/libfake_nvml.so "${RUNS:-50}"
build/bin/bench_machine log build/bin/headroom build/lib/libfake_nvml.so "${SECONDS_LONG:-60}"
build/bin/bench_lease "${LEASE_RUNS:-20}"
bench/run_bench.py build/bin/headroom build/lib/libfake_nvml.so "${WATCHED_SECONDS:-20}"
build/bin/bench_trace "${EVENTS:-10000000}"
build/bin/bench_allocator "${ALLOCATOR_EVENTS:-1000000}" "${ALLOCATOR_RUNS:-5}"
build/bin/bench_dry_run "${DRY_RUNS:-5}"
build/bin/bench_optimizer "${MILLIONS:-64}"
build/bin/bench_quantised
build/bin/bench_learning "${LEARNING_STEPS:-1000}"
build/bin/bench_checkpoint
bench/estimate_bench.py "${ESTIMATES:-5}"
OMP_NUM_THREADS=1 build/bin/bench_fused_loss "${LOSS_ROWS:-512}" "${LOSS_CLASSES:-32064}" 2048 "${LOSS_RUNS:-5}"
