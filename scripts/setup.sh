#!/usr/bin/env bash
# Everything the build needs, on a bare Debian 12 or Ubuntu 24.04: Debian packages by apt-get, LibTorch
# by pip into .venv. Quick when everything is there. `make` calls it; it may be run by hand.
#
#   scripts/setup.sh          what build, demo and tests need
#   scripts/setup.sh clang    and what clang, the sanitizers and `make lint` need
#   scripts/setup.sh pages    and a browser, for tests and pictures of pages
#   scripts/setup.sh promtool and Prometheus, whose promtool checks our metrics; it starts a server, so
#                             only CI asks for it
#   TORCH=2.15.0 scripts/setup.sh   another LibTorch, 2.11.0 to 2.15.0, which .venv then keeps
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache python3-venv
          libcli11-dev nlohmann-json3-dev libfmt-dev libzstd-dev zlib1g-dev libyaml-cpp-dev libjs-d3
          libturbojpeg0-dev libpng-dev libmatio-dev pkg-config libncurses-dev libcpp-httplib-dev
          python3-prometheus-client
          libgtest-dev libgmock-dev clang-format-14 tmux patchelf)
# The Python face is built against the headers of the Python that has LibTorch's wheel.
python_has_headers() {
  python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' 2>/dev/null
}
python_has_headers || packages+=(python3-dev)
for more in "$@"; do
  case $more in
    clang) packages+=(clang-14 clang-tidy-14 libclang-rt-14-dev) ;;
    pages) packages+=(chromium) ;;
    promtool) packages+=(prometheus) ;;
    *) echo "setup: expected clang, pages or promtool, received $more" >&2; exit 64 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "== installing Debian packages: ${missing[*]}"
  as_root=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup: root or sudo is needed to install ${missing[*]}" >&2; exit 1; }
    as_root=sudo
  fi
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# TORCH, else what .venv has, else the version that everything is judged with.
if [ -n "${HEADROOM_TORCH:-}" ]; then
  echo "== LibTorch: HEADROOM_TORCH=$HEADROOM_TORCH"
else
  there=$(sed 's/^torch==//; s/ .*//' .venv/.headroom-setup 2>/dev/null || true)
  scripts/torch.sh "${TORCH:-${there:-2.11.0}}" .venv
fi
