#!/usr/bin/env bash
# find_package.sh BUILD TORCH CMAKE_ARGS...: installs Headroom into a new folder and finds it in the
# ways that projects do. Once `COMPONENTS core` was never found, a torch in CMAKE_PREFIX_PATH and the
# official zip were not seen, and an optional find_package ended the project's configuration.
set -euo pipefail
build=$1 torch=$2
minor=$(sed -n "s/^__version__ = '\([0-9]*\.[0-9]*\).*/\1/p" "$torch/version.py")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; cat "$work/log"; exit 1; }
cmake --install "$build" --prefix "$work/installed" > "$work/log" 2>&1 || fail "install"
# Once a program of 3 MB had 16 MB of the archive's debug information.
objdump -h "$work"/installed/lib*/libheadroom_core.a > "$work/log"
if ! grep -q '^CMAKE_BUILD_TYPE:STRING=Debug' "$build/CMakeCache.txt" &&
  grep -q '\.debug_info' "$work/log"; then fail "libheadroom_core.a has debug information"; fi

# Once decoder.h was installed, which belongs to the room alone, and a header that it includes was not.
(cd "$work/installed/include" && grep -rhoE '^#include "headroom/[^"]+' headroom | cut -d'"' -f2 | sort -u |
  while read -r header; do [ -e "$header" ] || echo "$header is not installed"; done) > "$work/log"
if [ -s "$work/log" ]; then fail "installed headers include others"; fi

mkdir "$work/core" "$work/engine" "$work/optional"
cat > "$work/core/main.cpp" <<'END'
#include <headroom/base/bytes.h>
#include <headroom/gpu/wait.h>
// Once each member that is not named here was a warning of g++ -Wextra, an error with -Werror.
headroom::gpu::WaitOptions patient() { return {.timeout = headroom::Seconds(60)}; }
int main() {
  return headroom::parse_bytes("1KiB").count == 1024 && patient().interval.count() == 30 ? 0 : 1;
}
END
cat > "$work/core/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(core LANGUAGES CXX)
find_package(headroom REQUIRED COMPONENTS core)
if(NOT headroom_core_FOUND OR TARGET headroom::headroom)
  message(FATAL_ERROR "expected the core alone")
endif()
add_executable(main main.cpp)
target_compile_options(main PRIVATE -Wall -Wextra -Werror)
target_link_libraries(main PRIVATE headroom::core)
END
cat > "$work/engine/main.cpp" <<END
#include <headroom/dryrun/dry_run.h>
#include <headroom/libtorch/build_info.h>
headroom::dryrun::Subject nothing() { return {.step = [] {}}; }
int main() {
  if (!nothing().parameters.empty()) return 1;
  return headroom::libtorch::build_info().version.substr(0, 4) == "$minor" ? 0 : 1;
}
END
cat > "$work/engine/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(engine LANGUAGES CXX)
find_package(headroom REQUIRED COMPONENTS engine)
find_package(headroom REQUIRED COMPONENTS engine)  # once more does no harm
add_executable(main main.cpp)
target_compile_options(main PRIVATE -Wall -Wextra -Werror)
target_link_libraries(main PRIVATE headroom::headroom)
END
cat > "$work/optional/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(optional LANGUAGES CXX)
find_package(headroom ${how} COMPONENTS core OPTIONAL_COMPONENTS engine)
message(STATUS "core ${headroom_core_FOUND}, engine ${headroom_engine_FOUND}")
find_package(headroom ${how})
if(headroom_FOUND)
  message(FATAL_ERROR "found without LibTorch")
endif()
message(STATUS "went on")
END

# A machine without any LibTorch but the one that is named: the search path has no python3 with torch.
mkdir "$work/bin"
for program in cmake ninja c++ g++ clang++ cc ld as ar ranlib pkg-config; do
  if found=$(command -v "$program"); then ln -s "$found" "$work/bin/$program"; fi
done
bare() { env -u HEADROOM_TORCH -u VIRTUAL_ENV -u CMAKE_PREFIX_PATH "PATH=$work/bin" "$@"; }
count=0
configure() {  # PROJECT CMAKE_ARGS...
  count=$((count + 1))
  bare cmake -S "$work/$1" -B "$work/build$count" -G Ninja "${args[@]}" "${@:2}" > "$work/log" 2>&1
}
args=("${@:3}")
finds() { configure "$@" || fail "not found: $*"; }
builds() {
  finds "$@"
  bare cmake --build "$work/build$count" > "$work/log" 2>&1 || fail "not built: $*"
  "$work/build$count/main" || fail "does not run: $*"
}

installed="-DCMAKE_PREFIX_PATH=$work/installed"
builds core "$installed"
builds engine "$installed" "-DHEADROOM_TORCH=$torch"

zip="$work/libtorch"  # the layout of the official zip: no version.py
mkdir "$zip"
ln -s "$torch/lib" "$torch/include" "$zip"
echo "$minor.0+cpu" > "$zip/build-version"
builds engine "$installed;$zip"
finds engine "$installed;$torch"
finds engine "$installed;$torch/share/cmake"
finds engine "$installed" "-DTORCH_INSTALL_PREFIX=$torch"
finds engine "$installed" "-DTorch_DIR=$torch/share/cmake/Torch"

finds optional "$installed" -Dhow=QUIET
grep -q 'core TRUE, engine FALSE' "$work/log" || fail "the core without the engine"
grep -q 'went on' "$work/log" || fail "an optional find ended the configuration"
if grep -q 'LibTorch' "$work/log"; then fail "QUIET is not quiet"; fi
finds optional "$installed"
grep -q 'set HEADROOM_TORCH' "$work/log" || fail "the message names what to set"
if configure engine "$installed"; then fail "found without LibTorch"; fi
grep -q 'set HEADROOM_TORCH' "$work/log" || fail "the message names what to set"
echo '2.5.1+cpu' > "$zip/build-version"
if configure engine "$installed" "-DHEADROOM_TORCH=$zip"; then fail "found with LibTorch 2.5"; fi
tr -s '\n ' ' ' < "$work/log" | grep -q 'is of version 2.5.1' || fail "the message names the version"

if [ -x "$work/bin/pkg-config" ]; then
  export PKG_CONFIG_PATH="$work/installed/lib/pkgconfig"
  for package in headroom-core headroom; do
    source=$([ "$package" = headroom ] && echo engine || echo core)
    c++ -std=c++20 "$work/$source/main.cpp" -o "$work/main" \
      $(pkg-config --define-variable="torch=$torch" --cflags --libs "$package") > "$work/log" 2>&1 ||
      fail "pkg-config $package"
    "$work/main" || fail "pkg-config $package: does not run"
  done
fi
