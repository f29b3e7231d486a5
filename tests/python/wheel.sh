#!/usr/bin/env bash
# The wheel in a fresh virtual environment: a whole torch is there (that of .venv-peers is lent to it, to
# spare 3 GB), nothing of this checkout is.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
scripts/python.sh
scripts/wheel.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv-peers/bin/python -m venv "$work/venv"
python=$work/venv/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
.venv-peers/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$site/lent.pth"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index dist/headroom-*.whl
cp examples/python/will_it_fit.py "$work/"

cd "$work"  # from here on without the checkout
unset PYTHONPATH HEADROOM_TORCH HEADROOM_PYTHON VIRTUAL_ENV
export OMP_NUM_THREADS=1 PATH="$work/venv/bin:/usr/bin:/bin"
"$python" - "$work" <<'PROGRAM'
import sys
import headroom
assert headroom.__file__.startswith(sys.argv[1]), headroom.__file__
assert headroom.gpus("sim:2x24GiB")[1].total == 24 << 30
import torch
box = headroom.simulate("24GiB", mode="compute")
assert torch.ones(3, device="sim").sum().item() == 3
print("the package works:", headroom.__version__, box)
PROGRAM
"$python" will_it_fit.py | tail -2
headroom version > /dev/null
headroom gpus --gpus sim:1x24GiB
cat > train.py <<'PROGRAM'
import torch
def make_step(batch=4):
    return torch.nn.Linear(64, 64), torch.ones(batch, 64)
PROGRAM
headroom estimate train.py:make_step --gpus "RTX 4090"
headroom estimate gpt2 --batch 1 --seq 128 --gpus "RTX 4090" --json > /dev/null
cat > loop.py <<'PROGRAM'
import torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(net.parameters())
while True:
    net(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
PROGRAM
headroom rehearse --gpus "RTX 4090" -- "$python" loop.py | grep "Rehearsed 3 steps"
"$python" -m pip uninstall --quiet --yes headroom
[ ! -e "$work/venv/bin/headroom" ]
echo "wheel: installs into a fresh environment, works there, and goes without a trace"
