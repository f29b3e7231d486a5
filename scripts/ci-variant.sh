#!/usr/bin/env bash
# scripts/ci-variant.sh asan|tsan: builds with that sanitizer, and so with clang 14, what CI has time
# for: the core's rooms, the commands and two of the engine's test binaries; with asan all of the
# engine, so that clang has seen it, with tsan without the rooms from nn on, which have no threads.
# Then runs their tests. `make asan`, `make tsan` and `make clang` do all.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
models=ON
[ "$preset" = asan ] || models=OFF
[ -f "build/$preset/build.ninja" ] ||
  cmake --preset "$preset" -DHEADROOM_BUILD_MODELS=$models > /dev/null
ninja -C "build/$preset" --quiet headroom_cli core_tests engine_tests sim_tests
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
  -R '^(core|engine)\.' --timeout 300
# A request that no machine can serve is refused, as it is without a sanitizer.
export ASAN_OPTIONS=allocator_may_return_null=1
# LibTorch is not built with the thread sanitizer: what it does to its own memory, and how OpenMP's
# threads wait for each other, cannot be seen. Our code and the headers in it are.
if [ "$preset" = tsan ]; then
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:allocator_may_return_null=1 OMP_NUM_THREADS=1
fi
# In one process: starting LibTorch under a sanitizer costs more than most of these tests.
"build/$preset/bin/sim_tests" --gtest_brief=1
