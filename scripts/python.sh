#!/usr/bin/env bash
# Python with the package as it was built, in a virtual environment with a whole PyTorch and transformers:
# the tests of the Python face need it, and so do PyTorch's own tools (peers.sh).
#
#   scripts/python.sh               makes the environment; quick when it is there
#   scripts/python.sh FILE ...      and runs a program in it
#   scripts/python.sh --if-there FILE ...   exits with 77, which ctest takes for "skipped", without one
#
# Variables, for another PyTorch than the one that .venv has (scripts/versions.sh):
#   TORCH=2.15.0 TRANSFORMERS=5.23.0 PEFT=0.21.2   what to install
#   HEADROOM_PEERS=.venv-2.15          where; .venv-peers by default
#   HEADROOM_BUILD=build/torch-2.15    the build whose package is used; build by default
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" && venv=$(realpath -ms "${HEADROOM_PEERS:-.venv-peers}") build=$(realpath -ms "${HEADROOM_BUILD:-build}")
cd "$OLDPWD"

there=$(sed 's/^torch==//; s/ .*//' "$root/.venv/.headroom-setup" 2>/dev/null || true)
packages=("torch==${TORCH:-${there:-2.11.0}}" numpy "transformers==${TRANSFORMERS:-4.57.6}"
          expecttest==0.3.0 cloudpickle==3.1.2 "peft==${PEFT:-0.18.1}" tensorboard==2.21.0
          bitsandbytes==0.50.2)
# The libraries of the scripts in tests/rehearse, for the PyTorch that they are pinned for.
libraries="$root/tests/rehearse/requirements.txt"
wanted=("${packages[@]}")
[ -n "${TRANSFORMERS:-}" ] || wanted+=("rehearse-$(sha256sum < "$libraries" | cut -c1-12)")
ready() { [ "$(cat "$venv/.headroom-setup" 2>/dev/null)" = "${wanted[*]}" ]; }

if [ "${1:-}" = --if-there ]; then
  shift
  ready || { echo "skipped: scripts/python.sh makes the environment that this needs"; exit 77; }
elif ! ready; then
  echo "== installing ${packages[0]} and ${packages[2]} into $(basename "$venv")"
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  [ -n "${TRANSFORMERS:-}" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$libraries"
  echo "${wanted[*]}" > "$venv/.headroom-setup"
fi
[ $# -gt 0 ] || exit 0
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PYTHONPATH="$build/python${PYTHONPATH:+:$PYTHONPATH}"
exec "$venv/bin/python" "$@"
