#!/usr/bin/env bash
# PyTorch's own tools as judges of Headroom's figures: Python programs in a virtual environment of
# their own, because Python's torch needs the full set of wheels.
#
#   scripts/peers.sh           runs them and refreshes what is stored in tests/peers/
#   scripts/peers.sh --check   runs them and fails if they say other than what is stored; of the
#                              cases of transformers' models a sixth, which changes by the day
set -euo pipefail
cd "$(dirname "$0")/.."

run() { scripts/python.sh "tests/peers/$1.py" "${@:2}"; }

case "${1:-}" in
  "") how=--write share=1/1 ;;
  --check) how=--check share=$((10#$(date +%j) % 6 + 1))/6 ;;
  *) echo "peers: expected nothing or --check, received $1" >&2; exit 2 ;;
esac
run peaks "$how" tests/peers/figures.json
run transformers_peaks "$how" --share "$share"
run transformers_numbers "$how" tests/peers/transformers_numbers.json
run optimizers "$how" tests/peers/optimizers.json
run training
run quantised "${HEADROOM_BUILD:-build}/bin/quantised_files"
run teams "${HEADROOM_BUILD:-build}/bin/team_losses"
