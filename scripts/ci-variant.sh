#!/usr/bin/env bash
# scripts/ci-variant.sh clang|asan|tsan: builds the core's rooms, the commands and two of the engine's
# test binaries with that preset and runs their tests. `make clang`, `make asan`, `make tsan` do all.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" > /dev/null
targets=(headroom_cli core_tests engine_tests)
# The thread sanitizer does not see LibTorch's own synchronisation; `make tsan` says more.
[ "$preset" = tsan ] || targets+=(sim_tests)
ninja -C "build/$preset" --quiet "${targets[@]}"
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
  -R '^(core|engine)\.' --timeout 300
# In one process: starting LibTorch under a sanitizer costs more than most of these tests.
[ "$preset" = tsan ] || "build/$preset/bin/sim_tests" --gtest_brief=1
