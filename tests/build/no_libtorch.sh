#!/usr/bin/env bash
# no_libtorch.sh HEADROOM CORE_ARCHIVE ENGINE: the command and the core know no LibTorch; the engine,
# which does, proves that the looking would find it.
# No grep -q: it stops reading at the first hit, which ends the writer and, by pipefail, hides the hit.
set -euo pipefail
loads_torch() { ldd "$1" | grep -E 'libtorch|libc10' >/dev/null; }
mentions_torch() { nm -C --undefined-only "$1" 2>/dev/null | grep -E ' (c10|at|torch)::' >/dev/null; }
loads_torch "$1" && { echo "$1 loads LibTorch:"; ldd "$1"; exit 1; }
mentions_torch "$2" && { echo "$2 needs symbols of LibTorch"; exit 1; }
loads_torch "$3" || { echo "$3 should load LibTorch, and does not: this test sees nothing"; exit 1; }
