#!/usr/bin/env bash
# `make versions`: Headroom with other versions of PyTorch than the one in .venv, and with transformers 5.
# Each gets an environment with a whole PyTorch (.venv-2.15, about 5 GB) and a build of its own
# (build/torch-2.15).
#
#   scripts/versions.sh                 2.12, 2.13, 2.14 and 2.15
#   scripts/versions.sh 2.15            one of them
#   scripts/versions.sh 2.15 '^sim\.'   and only these tests
#   scripts/versions.sh --share         what CI has time for: 2.15's engine, from the few wheels that it needs
#                                       without a GPU and not optimised, with tests that change by the day
#
# With 2.15 every test runs; with those before it the core, the allocator against the real one, the simulation,
# the networks, the settings and the Python face.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A release=([2.11]=2.11.0 [2.12]=2.12.1 [2.13]=2.13.0 [2.14]=2.14.1 [2.15]=2.15.0)
short='^(allocator|core|oracle|settings_oracle|sim|operator|nets|python)\.'
short_targets=(core_tests settings_oracle_tests allocator_oracle sim_tests operator_tests nets_tests
               job_program lease_stress headroom_cli headroom_engine headroom_cuda adapter_peer _core _engine)

configure() {  # configure FOLDER ENVIRONMENT [OPTION ...]
  HEADROOM_TORCH=$(echo "$PWD/$2"/lib/python3*/site-packages/torch)
  export HEADROOM_TORCH
  cmake --preset release -B "$1" "-DHEADROOM_TORCH=$HEADROOM_TORCH" "${@:3}" > /dev/null
}

check() {  # check MINOR TESTS [TARGET ...]
  local start=$SECONDS
  export TORCH=${release[$1]} HEADROOM_PEERS=.venv-$1 HEADROOM_BUILD=build/torch-$1 TRANSFORMERS=5.23.0
  [ "$1" != 2.11 ] || TRANSFORMERS=4.57.6
  echo "==== PyTorch $TORCH, transformers $TRANSFORMERS"
  scripts/python.sh
  configure "$HEADROOM_BUILD" ".venv-$1"
  ninja -C "$HEADROOM_BUILD" --quiet "${@:3}"
  scripts/test.sh "$HEADROOM_BUILD" -R "$2" |
    grep -v Skipped | grep -E 'tests passed|^Cases of|\*\*\*|: Failure$|^(Expected|  Actual| *Which is):?' || true
  [ "${PIPESTATUS[0]}" = 0 ] || failed+=("$1")
  times+=("$(printf 'PyTorch %-20s %5d s' "$TORCH" $((SECONDS - start)))")
}

share() {
  local all=(sim_tests operator_tests nets_tests peers_tests) build=build/share-2.15
  local tests=${all[$((10#$(date +%j) % ${#all[@]}))]} models=OFF
  [ "$tests" != peers_tests ] && [ "$tests" != nets_tests ] || models=ON
  scripts/torch.sh "${release[2.15]}" .venv-share-2.15
  configure $build .venv-share-2.15 "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -DNDEBUG" -DHEADROOM_BUILD_MODELS=$models
  ninja -C $build --quiet allocator_oracle "$tests"
  $build/bin/allocator_oracle fuzz --streams 500 --jobs "$(nproc)"
  echo "$tests with PyTorch ${release[2.15]}"
  OMP_NUM_THREADS=1 $build/bin/$tests --gtest_brief=1
}

if [ "${1:-}" = --share ]; then share; exit; fi
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
