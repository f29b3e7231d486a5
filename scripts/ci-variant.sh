#!/usr/bin/env bash
# scripts/ci-variant.sh clang|asan|tsan: builds the core's rooms, the commands and one engine test
# binary with that preset and runs their tests. `make clang`, `make asan`, `make tsan` do all.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" > /dev/null
ninja -C "build/$preset" --quiet headroom_cli core_tests engine_tests
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
  -R '^(core|engine)\.' --timeout 300
