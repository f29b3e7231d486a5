#!/usr/bin/env bash
# libFuzzer over all readers of traces, from tests/fuzz/corpus, and over the head of safetensors files, from
# tests/fuzz/corpus-safetensors: SECONDS_LONG seconds (600) together, ended by the first input that crashes, hangs or
# takes too much memory. What they learn stays in build/fuzz/found and build/fuzz/found-safetensors.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz > /dev/null
ninja -C build/fuzz --quiet read_trace_fuzz read_safetensors_fuzz
cd build/fuzz
seconds=$((${SECONDS_LONG:-600} / 2))
fuzz() { # target, what it has found so far, its corpus
  mkdir -p "$2"
  "bin/$1" "$2" "../../tests/fuzz/$3" -max_total_time="$((seconds > 0 ? seconds : 1))" -max_len=65536 \
    -rss_limit_mb=512 -timeout=10 -print_final_stats=1 -verbosity=1
}
fuzz read_trace_fuzz found corpus
fuzz read_safetensors_fuzz found-safetensors corpus-safetensors
echo "fuzz-readers: clean"
