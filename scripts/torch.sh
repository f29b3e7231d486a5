#!/usr/bin/env bash
# scripts/torch.sh VERSION FOLDER: LibTorch VERSION (2.15.0) from PyPI in the virtual environment
# FOLDER. On a machine without a GPU three wheels are enough: torch and two of CUDA's; with one, all
# that torch depends on. Three more are nvcc, with which Headroom's CUDA kernels are compiled on every
# machine (cmake/Nvcc.cmake). Quick when it is there.
set -euo pipefail
version=$1 folder=$2

case $version in
  2.1[1-4].*) cuda=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85) ;;
  2.15.*) cuda=(nvidia-cuda-runtime==13.2.75 nvidia-cuda-cupti==13.2.75) ;;
  *) echo "torch: expected a version from 2.11.0 to 2.15.0, received '$version'" >&2; exit 2 ;;
esac
nvcc=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88)
kind=light
if [ -e /dev/nvidia0 ] || [ -e /proc/driver/nvidia/version ]; then kind=full; fi
stamp="$version ${cuda[*]} ${nvcc[*]} $kind"
[ "$(cat "$folder/.headroom-setup" 2>/dev/null)" != "$stamp" ] || exit 0

echo "== installing LibTorch $version into $folder ($kind)"
[ -x "$folder/bin/pip" ] || python3 -m venv "$folder"
if [ $kind = full ]; then
  "$folder/bin/pip" install --quiet --disable-pip-version-check "torch==$version"
else
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "torch==$version" "${cuda[@]}"
fi
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "${nvcc[@]}"
echo "$stamp" > "$folder/.headroom-setup"
