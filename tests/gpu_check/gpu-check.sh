#!/usr/bin/env bash
# gpu-check.sh [ARGUMENTS OF gpu_check]: the checks that need a GPU, run from the folder that
# `make dist` made. LibTorch is found as `headroom` finds it: HEADROOM_TORCH, a virtual environment,
# python3. Exit codes as gpu_check's (--help); 69 also without LibTorch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
torch=$("$here/bin/headroom" version --json | sed -n 's/.*"torch_folder":"\([^"]*\)".*/\1/p')
if [ -z "$torch" ]; then
  echo "gpu-check.sh: LibTorch is not found; try HEADROOM_TORCH=.../site-packages/torch" >&2
  exit 69
fi
export LD_LIBRARY_PATH=$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$here/bin/gpu_check" "$@"
