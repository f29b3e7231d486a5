#!/usr/bin/env bash
# quickstart.sh BUILD SOURCE TORCH CMAKE_ARGS...: installs Headroom into a new folder, builds the example
# against it with find_package(headroom), and runs both programs.
set -euo pipefail
build=$1 source=$2 torch=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/installed" > "$work/log" || { cat "$work/log"; exit 1; }
cmake -S "$source/examples/quickstart" -B "$work/build" -G Ninja "-DCMAKE_PREFIX_PATH=$work/installed" \
  "-DHEADROOM_TORCH=$torch" "${@:4}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }

"$work/build/which_gpu" sim:2x24GiB | tee "$work/out"
grep -qx 'GPU 0 has 24.00 GiB' "$work/out"
status=0
"$work/build/which_gpu" sim:2x8GiB > "$work/out" || status=$?
grep -q 'short by 2.00 GiB' "$work/out"
[ $status = 75 ]
HEADROOM_NVML=/nonexistent "$work/build/first_tensor" | tee "$work/out"
grep -qx 'sum on cpu: 6' "$work/out"
[ -f "$work/installed/lib/libheadroom_cuda.so" ]

cmake -S "$source/examples/dry-run" -B "$work/dry-run" -G Ninja "-DCMAKE_PREFIX_PATH=$work/installed" \
  "-DHEADROOM_TORCH=$torch" "${@:4}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/dry-run" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/dry-run/will_it_fit" "RTX 4090" 16 | tee "$work/out"
grep -q '^Peak .* in backward of step 2$' "$work/out"
status=0
"$work/dry-run/will_it_fit" "RTX 3080" 64 > "$work/out" || status=$?
grep -q '^Does not fit: ' "$work/out"
[ $status = 2 ]

cmake -S "$source/examples/estimate" -B "$work/estimate" -G Ninja "-DCMAKE_PREFIX_PATH=$work/installed" \
  "-DHEADROOM_TORCH=$torch" "${@:4}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/estimate" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/estimate/estimate" 8 "RTX 4090" | tee "$work/out"
grep -q '^Peak .* in backward of step 1$' "$work/out"
status=0  # once an abort of a program that caught nothing
"$work/estimate/estimate" 8 "RTX 409O" > "$work/out" 2>&1 || status=$?
[ $status = 64 ]
grep -q 'try RTX 4090' "$work/out"
"$work/estimate/largest_batch" "RTX 3080" | tee "$work/out"
grep -q '^RTX 3080: a batch of [0-9]* fits, [0-9]* does not; ' "$work/out"

cmake -S "$source/examples/train_loop" -B "$work/train_loop" -G Ninja "-DCMAKE_PREFIX_PATH=$work/installed" \
  "-DHEADROOM_TORCH=$torch" "${@:4}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/train_loop" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$source/tests/build/train_loop.sh" "$source/examples/train_loop" "$work/train_loop"
"$work/installed/bin/headroom" version
"$work/installed/bin/headroom-engine" version
