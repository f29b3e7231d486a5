#!/usr/bin/env bash
# PyTorch's own tools as judges of Headroom's figures: Python programs in a virtual environment of
# their own, because Python's torch needs the full set of wheels.
#
#   scripts/peers.sh           runs them and refreshes tests/peers/figures.json
#   scripts/peers.sh --check   runs them and fails if they say other than what is stored
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(torch==2.11.0 numpy)
if [ "$(cat .venv-peers/.headroom-setup 2>/dev/null)" != "${packages[*]}" ]; then
  echo "== installing PyTorch into .venv-peers"
  [ -x .venv-peers/bin/pip ] || python3 -m venv .venv-peers
  .venv-peers/bin/pip install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" > .venv-peers/.headroom-setup
fi

figures=tests/peers/figures.json
case "${1:-}" in
  "") how=(--write "$figures") ;;
  --check) how=(--check "$figures") ;;
  *) echo "peers: expected nothing or --check, received $1" >&2; exit 2 ;;
esac
OMP_NUM_THREADS=1 .venv-peers/bin/python tests/peers/peaks.py "${how[@]}"
