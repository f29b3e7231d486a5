#!/usr/bin/env bash
# `make versions`: Headroom with other versions of PyTorch than the one in .venv, and with transformers 5.
# Each gets an environment with a whole PyTorch (.venv-2.15, about 5 GB) and a build of its own
# (build/torch-2.15).
#
#   scripts/versions.sh                 2.12, 2.13, 2.14 and 2.15
#   scripts/versions.sh 2.15            one of them
#   scripts/versions.sh 2.15 '^sim\.'   and only these tests
#
# With 2.15 every test runs; with those before it the allocator against the real one, the simulation, the
# networks, the settings and the Python face.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A release=([2.11]=2.11.0 [2.12]=2.12.1 [2.13]=2.13.0 [2.14]=2.14.1 [2.15]=2.15.0)
short='^(allocator|core|oracle|settings_oracle|sim|operator|nets|python)\.'
short_targets=(core_tests settings_oracle_tests allocator_oracle sim_tests operator_tests nets_tests
               job_program lease_stress headroom_cli headroom_engine _core _engine)

check() {  # check MINOR TESTS [TARGET ...]
  local start=$SECONDS
  export TORCH=${release[$1]} HEADROOM_PEERS=.venv-$1 HEADROOM_BUILD=build/torch-$1 TRANSFORMERS=5.23.0
  [ "$1" != 2.11 ] || TRANSFORMERS=4.57.6
  echo "==== PyTorch $TORCH, transformers $TRANSFORMERS"
  scripts/python.sh
  HEADROOM_TORCH=$(echo "$PWD/.venv-$1"/lib/python3*/site-packages/torch)
  export HEADROOM_TORCH
  cmake --preset release -B "$HEADROOM_BUILD" "-DHEADROOM_TORCH=$HEADROOM_TORCH" > /dev/null
  ninja -C "$HEADROOM_BUILD" --quiet "${@:3}"
  ctest --test-dir "$HEADROOM_BUILD" --output-on-failure --no-tests=error -j "$(nproc)" -R "$2" |
    grep -E 'tests passed|Failed|Failure|did not run|\*\*\*|^[^ ]*:[0-9]+: ' || true
  [ "${PIPESTATUS[0]}" = 0 ] || failed+=("$1")
  times+=("$(printf 'PyTorch %-20s %5d s' "$TORCH" $((SECONDS - start)))")
}

failed=() times=()
wanted=("${1:-}")
[ -n "${wanted[0]}" ] || wanted=(2.12 2.13 2.14 2.15)
for minor in "${wanted[@]}"; do
  [ -n "${release[$minor]:-}" ] || { echo "versions: expected 2.11 to 2.15, received $minor" >&2; exit 2; }
  case $minor in
    2.11 | 2.15) check "$minor" "${2:-.}" ;;
    *) check "$minor" "${2:-$short}" "${short_targets[@]}" ;;
  esac
done
printf '%s\n' "${times[@]}"
[ ${#failed[@]} = 0 ] || { echo "versions: tests failed with ${failed[*]}" >&2; exit 1; }
