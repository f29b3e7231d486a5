#!/usr/bin/env bash
# dist/headroom-VERSION-*.whl: the Python package with the command line, for the Python that it was built
# with and a torch 2.11 that is installed there already. The small libraries it needs travel inside.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(headroom VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python=.venv/bin/python3
[ -x $python ] || python=python3
site=lib/python$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages
out=build/wheel
rm -rf "$out"
mkdir -p "$out/headroom/lib" "$out/bin" dist

cp build/python/headroom/_core.*.so build/python/headroom/_engine.*.so "$out/headroom/"
cp -L build/lib/libheadroom.so.0 build/lib/libheadroom_cuda.so "$out/headroom/lib/"
cp build/bin/headroom build/bin/headroom-engine "$out/bin/"

# Files of the C and C++ libraries are everywhere; all others that are not LibTorch's travel along.
needed() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libstdc\+\+|libgcc_s)\.so' |
    grep -vE '/torch/lib/|/nvidia/|libheadroom|libpython'
}
for file in build/bin/headroom build/bin/headroom-engine build/python/headroom/_core.*.so; do
  for library in $(needed "$file"); do cp -Lu "$library" "$out/headroom/lib/"; done
done

relocate() { patchelf --set-rpath "$2" "$1"; }
for file in "$out"/bin/* "$out"/headroom/*.so "$out"/headroom/lib/libheadroom*; do strip "$file"; done
relocate "$out/bin/headroom" "\$ORIGIN/../$site/headroom/lib"
relocate "$out/bin/headroom-engine" "\$ORIGIN/../$site/headroom/lib:\$ORIGIN/../$site/torch/lib"
for file in "$out"/headroom/*.so; do relocate "$file" '$ORIGIN/lib:$ORIGIN/../torch/lib'; done
for file in "$out"/headroom/lib/libheadroom*; do relocate "$file" '$ORIGIN:$ORIGIN/../../torch/lib'; done

rm -f "dist/headroom-$version"-*.whl
$python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
ls -sh dist/headroom-"$version"-*.whl
