#!/usr/bin/env bash
# dist/headroom-VERSION-*.whl: the Python package with the command line, of what is built in build/, for
# the Python and the minor version of torch that it was built with.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(headroom VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python=.venv/bin/python3
[ -x $python ] || python=python3
rm -f "dist/headroom-$version"-*.whl
HEADROOM_BUILT=$PWD/build $python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
ls -sh dist/headroom-"$version"-*.whl
