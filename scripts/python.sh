#!/usr/bin/env bash
# Python with the package as it was built, in the virtual environment .venv-peers (a whole PyTorch and
# transformers): the tests of the Python face need it, and so do PyTorch's own tools (peers.sh).
#
#   scripts/python.sh               makes the environment; quick when it is there
#   scripts/python.sh FILE ...      and runs a program in it
#   scripts/python.sh --if-there FILE ...   exits with 77, which ctest takes for "skipped", without one
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

packages=(torch==2.11.0 numpy transformers==4.57.6 expecttest==0.3.0 cloudpickle==3.1.2)
ready() { [ "$(cat "$root/.venv-peers/.headroom-setup" 2>/dev/null)" = "${packages[*]}" ]; }

if [ "${1:-}" = --if-there ]; then
  shift
  ready || { echo "skipped: scripts/python.sh makes the environment that this needs"; exit 77; }
elif ! ready; then
  echo "== installing PyTorch and transformers into .venv-peers"
  [ -x "$root/.venv-peers/bin/pip" ] || python3 -m venv "$root/.venv-peers"
  "$root/.venv-peers/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" > "$root/.venv-peers/.headroom-setup"
fi
[ $# -gt 0 ] || exit 0
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PYTHONPATH="$root/build/python${PYTHONPATH:+:$PYTHONPATH}"
exec "$root/.venv-peers/bin/python" "$@"
