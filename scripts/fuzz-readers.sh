#!/usr/bin/env bash
# libFuzzer over all readers of traces, from tests/fuzz/corpus, over the head of safetensors files, from
# tests/fuzz/corpus-safetensors, and over logs, from the texts of tests/oom/corpus.jsonl: SECONDS_LONG seconds (600)
# together, ended by the first input that crashes, hangs or takes too much memory. What they learn stays in
# build/fuzz/found and its neighbours.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz > /dev/null
ninja -C build/fuzz --quiet read_trace_fuzz read_safetensors_fuzz classify_fuzz
cd build/fuzz
seconds=$((${SECONDS_LONG:-600} / 3))
fuzz() { # target, what it has found so far, its corpus
  mkdir -p "$2"
  "bin/$1" "$2" "../../tests/fuzz/$3" -max_total_time="$((seconds > 0 ? seconds : 1))" -max_len=65536 \
    -rss_limit_mb=512 -timeout=10 -print_final_stats=1 -verbosity=1
}
fuzz read_trace_fuzz found corpus
fuzz read_safetensors_fuzz found-safetensors corpus-safetensors
mkdir -p corpus-logs
python3 - ../../tests/oom/corpus.jsonl corpus-logs << 'END'
import json, pathlib, sys
for line in open(sys.argv[1], encoding="utf-8"):
    failure = json.loads(line)
    pathlib.Path(sys.argv[2], failure["id"]).write_text(failure["text"], encoding="utf-8")
END
fuzz classify_fuzz found-logs ../../build/fuzz/corpus-logs
echo "fuzz-readers: clean"
