#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET...]: configures if needed and builds a CMake preset, or these targets
# of it. Says nothing while all goes well, and everything when not.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
dir=build
[ "$preset" = release ] || dir=build/$preset
if [ ! -f "$dir/build.ninja" ]; then
  cmake --preset "$preset" > "${TMPDIR:-/tmp}/headroom-cmake-$$.log" 2>&1 ||
    { cat "${TMPDIR:-/tmp}/headroom-cmake-$$.log"; exit 1; }
  rm -f "${TMPDIR:-/tmp}/headroom-cmake-$$.log"
fi
# Ninja on a terminal rewrites one line; elsewhere only what fails is worth reading.
if [ -t 1 ]; then ninja -C "$dir" "$@"; else ninja -C "$dir" --quiet "$@"; fi
