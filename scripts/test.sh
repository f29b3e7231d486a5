#!/usr/bin/env bash
# scripts/test.sh BUILD [CTEST'S OPTIONS ...]: runs the tests of a build folder. A test of ctest's is a
# suite of GoogleTest or a program; the last line says how many cases of GoogleTest there were in them.
# What it prints is also in BUILD/Testing/last-run.txt.
set -uo pipefail
build=$1; shift
mkdir -p "$build/Testing"
{
  ctest --test-dir "$build" --output-on-failure --no-tests=error -j "${JOBS:-$(nproc)}" "$@"
  code=$?
  awk '/^\[  (PASSED |FAILED |SKIPPED) \] [0-9]+ tests?[.,]/ { cases[$2] += $4 }
    END { printf "Cases of GoogleTest: %d passed, %d failed, %d skipped\n",
            cases["PASSED"], cases["FAILED"], cases["SKIPPED"] }' \
    "$build/Testing/Temporary/LastTest.log"
  exit $code
} | tee "$build/Testing/last-run.txt"
exit "${PIPESTATUS[0]}"
