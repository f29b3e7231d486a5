#!/usr/bin/env bash
# dist/headroom-VERSION: a folder that runs on another Linux of the same or a later age: the programs,
# libheadroom.so, libheadroom_cuda.so and the small libraries they need. LibTorch is found there through
# HEADROOM_TORCH, a virtual environment, or python3; the engine is started by `headroom`, which knows.
# gpu-check.sh in the folder runs there what `make gpu-check` runs here.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(headroom VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
out=dist/headroom-$version
rm -rf "$out"
cmake --install build --prefix "$PWD/$out" --strip > /dev/null

# `headroom top` finds its terminals in the system's terminfo (ncurses-base); ncurses itself travels along.
# Files of the C library's own package are everywhere; all others that are not LibTorch's travel
# along.
needed() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so' | grep -v '/torch/lib/' | grep -v '/nvidia/' |
    grep -v libheadroom
}
cp build/bin/gpu_check "$out/bin/"
strip "$out/bin/gpu_check"
cp tests/gpu_check/gpu-check.sh "$out/"
# A library that travels finds those that it needs itself beside it, as libcpp-httplib does OpenSSL.
carry() {
  local copy; copy="$out/lib/$(basename "$1")"
  [ -e "$copy" ] || { cp -L "$1" "$copy"; patchelf --set-rpath '$ORIGIN' "$copy"; }
}
for file in build/bin/headroom build/bin/headroom-engine build/bin/gpu_check; do
  for library in $(needed "$file"); do carry "$library"; done
done
# Where LibTorch was on the machine that built this means nothing elsewhere.
relocate() { cmake -DFILE="$1" -DRPATH="$2" -P cmake/SetRpath.cmake; }
relocate "$out/bin/headroom-engine" '$ORIGIN/../lib'
relocate "$out/bin/gpu_check" '$ORIGIN/../lib'
relocate "$out/lib/libheadroom.so.$version" '$ORIGIN'
relocate "$out/lib/libheadroom_cuda.so" '$ORIGIN'
patchelf --set-rpath '$ORIGIN' "$out/lib/libheadroom_images.so"
for library in $(needed build/lib/libheadroom_images.so); do carry "$library"; done
cp README.md CHANGELOG.md "$out/" 2>/dev/null || true
tar -C dist -czf "dist/headroom-$version.tar.gz" "headroom-$version"
du -sh "$out" "dist/headroom-$version.tar.gz"
