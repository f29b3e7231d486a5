#!/usr/bin/env bash
# scripts/wheel-layout.sh BUILD OUT: what belongs into the wheel, from a folder that is built: OUT/headroom
# (the package, its modules and libraries) and OUT/bin. The small libraries it needs travel along.
set -euo pipefail
build=$1 out=$2
module=$(basename "$build"/python/headroom/_core.*.so)
minor=$(sed -E 's/.*cpython-3([0-9]+).*/\1/' <<< "$module")
site=lib/python3.$minor/site-packages
rm -rf "$out"
mkdir -p "$out/headroom/lib" "$out/bin"

cp "$build"/python/headroom/_core.*.so "$build"/python/headroom/_engine.*.so "$out/headroom/"
cp -L "$build"/lib/libheadroom.so.0 "$build"/lib/libheadroom_cuda.so \
  "$build"/lib/libheadroom_images.so "$out/headroom/lib/"
cp "$build"/bin/headroom "$build"/bin/headroom-engine "$out/bin/"

# Files of the C and C++ libraries are everywhere; all others that are not LibTorch's travel along.
needed() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libstdc\+\+|libgcc_s)\.so' |
    grep -vE '/torch/lib/|/nvidia/|libheadroom|libpython'
}
for file in "$build"/bin/headroom "$build"/bin/headroom-engine "$build"/python/headroom/_core.*.so; do
  for library in $(needed "$file"); do cp -Lu "$library" "$out/headroom/lib/"; done
done

relocate() { patchelf --set-rpath "$2" "$1"; }
for file in "$out"/bin/* "$out"/headroom/*.so "$out"/headroom/lib/libheadroom*; do strip "$file"; done
relocate "$out/bin/headroom" "\$ORIGIN/../$site/headroom/lib"
relocate "$out/bin/headroom-engine" "\$ORIGIN/../$site/headroom/lib:\$ORIGIN/../$site/torch/lib"
for file in "$out"/headroom/*.so; do relocate "$file" '$ORIGIN/lib:$ORIGIN/../torch/lib'; done
for file in "$out"/headroom/lib/*; do relocate "$file" '$ORIGIN'; done  # libcpp-httplib finds OpenSSL
for file in "$out"/headroom/lib/libheadroom*; do relocate "$file" '$ORIGIN:$ORIGIN/../../torch/lib'; done
