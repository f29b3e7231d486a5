#!/usr/bin/env bash
# scripts/ci-variant.sh clang|asan|tsan: builds the core's rooms, the commands and two of the engine's
# test binaries with that preset and runs their tests; the sanitizers without the rooms from nn on,
# which these tests do not need. `make clang`, `make asan`, `make tsan` do all.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
models=OFF
[ "$preset" != clang ] || models=ON
[ -f "build/$preset/build.ninja" ] ||
  cmake --preset "$preset" -DHEADROOM_BUILD_MODELS=$models > /dev/null
ninja -C "build/$preset" --quiet headroom_cli core_tests engine_tests sim_tests
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
  -R '^(core|engine)\.' --timeout 300
# A request that no machine can serve is refused, as it is without a sanitizer.
[ "$preset" != asan ] || export ASAN_OPTIONS=allocator_may_return_null=1
# LibTorch is not built with the thread sanitizer: what it does to its own memory, and how OpenMP's
# threads wait for each other, cannot be seen. Our code and the headers in it are.
if [ "$preset" = tsan ]; then
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:allocator_may_return_null=1 OMP_NUM_THREADS=1
fi
# In one process: starting LibTorch under a sanitizer costs more than most of these tests.
"build/$preset/bin/sim_tests" --gtest_brief=1
