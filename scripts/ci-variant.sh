#!/usr/bin/env bash
# scripts/ci-variant.sh asan|tsan: builds with that sanitizer, and so with clang 14, what CI has time
# for, and runs its tests: the core's rooms, the commands, and two of the engine's test binaries. With
# asan also all of the engine, so that clang has seen it, and one more of its test binaries, another
# one each day. With tsan without the rooms from nn on, which have no threads.
# `make asan`, `make tsan` and `make clang` do all, also estimate_tests, which take too long for CI.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
models=ON
also=(dryrun_tests memory_tests models_tests nets_tests nn_tests optim_tests parallel_tests)
also=("${also[$((10#$(date +%j) % ${#also[@]}))]}")
[ "$preset" = asan ] || models=OFF also=()
dir=build/ci-$preset
[ -f "$dir/build.ninja" ] ||
  cmake --preset "$preset" -B "$dir" -DHEADROOM_BUILD_MODELS=$models > /dev/null
ninja -C "$dir" --quiet headroom_cli core_tests engine_tests sim_tests "${also[@]}"
scripts/test.sh "$dir" -R '^(core|engine)\.'
# A request that no machine can serve is refused, as it is without a sanitizer.
export ASAN_OPTIONS=allocator_may_return_null=1
# LibTorch is not built with the thread sanitizer: what it does to its own memory, and how OpenMP's
# threads wait for each other, cannot be seen. Our code and the headers in it are.
if [ "$preset" = tsan ]; then
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:allocator_may_return_null=1 OMP_NUM_THREADS=1
  TSAN_OPTIONS+=:die_after_fork=0  # a child process of a program with threads may have its own
  TSAN_OPTIONS+=:suppressions=$PWD/tests/build/tsan-suppressions.txt
fi
# In one process: starting LibTorch under a sanitizer costs more than most of these tests.
for tests in sim_tests "${also[@]}"; do
  echo "$tests"
  "$dir/bin/$tests" --gtest_brief=1
done
