#!/usr/bin/env bash
# libFuzzer over all readers of traces, from tests/fuzz/corpus: SECONDS_LONG seconds (600), ended by the
# first input that crashes, hangs or takes too much memory. What it learns stays in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz > /dev/null
ninja -C build/fuzz --quiet read_trace_fuzz
mkdir -p build/fuzz/found
cd build/fuzz
bin/read_trace_fuzz found ../../tests/fuzz/corpus -max_total_time="${SECONDS_LONG:-600}" -max_len=65536 \
  -rss_limit_mb=512 -timeout=10 -print_final_stats=1 -verbosity=1
echo "fuzz-readers: clean"
