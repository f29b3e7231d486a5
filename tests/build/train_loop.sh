#!/usr/bin/env bash
# train_loop.sh SOURCE BUILT: in the example of SOURCE at most ten lines change, added and removed ones
# counted. Its programs in BUILT learn the same; where large requests are refused, the first one dies and
# the second one trains.
set -euo pipefail
source=$1 built=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
ulimit -c 0

changed=$(diff "$source/before.cpp" "$source/after.cpp" | grep -c '^[<>]' || true)
echo "$changed changed lines"
[ "$changed" -ge 1 ] && [ "$changed" -le 10 ]

for program in before after; do
  "$built/$program" | tee "$work/out"
  grep -Eqx 'epoch 3: (9[0-9.]+|100) % right' "$work/out"
done

# A batch of 250 pictures has 3.1 MB, and the net's first layer makes 8.2 MB of it.
cat > "$work/refuse.cpp" <<'CODE'
#include <cerrno>
#include <cstdlib>
extern "C" int posix_memalign(void** where, std::size_t alignment, std::size_t bytes) {
  *where = bytes > 5'000'000 ? nullptr : std::aligned_alloc(alignment, bytes);
  return *where == nullptr ? ENOMEM : 0;
}
CODE
"${CXX:-c++}" -std=c++17 -shared -fPIC "$work/refuse.cpp" -o "$work/librefuse.so"
status=0
LD_PRELOAD="$work/librefuse.so" "$built/before" cpu 250 > "$work/out" 2>&1 || status=$?
[ $status != 0 ]
grep -q "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8192000 bytes" "$work/out"
LD_PRELOAD="$work/librefuse.so" "$built/after" cpu 250 | tee "$work/out"
grep -q '^epoch 3: ' "$work/out"
