#!/usr/bin/env bash
# The demonstration, for which no GPU is needed: whether a model can be trained on a card that is not
# here, and what would make it fit; then a simulated box of eight GPUs of 31.36 GiB with some jobs on
# it, what Headroom sees there, and which card it would take.
#
# Then a training on a card too small for its batch, which meets a refused request and a neighbour, and
# loses no step.
#
# The box is a shared one (docs/formats/simulated-box.md); the jobs are processes of `cat` under other
# names, which wait on a pipe, hold a share of the box's memory, and end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/bin:$PATH"
HEADROOM_STATE_DIR=$(mktemp -d)
export HEADROOM_STATE_DIR HEADROOM_LEASE_DIR=$HEADROOM_STATE_DIR/leases
unset HEADROOM_GPUS CUDA_VISIBLE_DEVICES
if [ -z "${LC_ALL:-}${LANG:-}" ]; then export LC_ALL=C.UTF-8; fi

mkfifo "$HEADROOM_STATE_DIR/pipe"
exec 9<>"$HEADROOM_STATE_DIR/pipe"
jobs_started=()
finish() {
  kill "${jobs_started[@]}" 2>/dev/null || true
  rm -rf "$HEADROOM_STATE_DIR"
}
trap finish EXIT

cards="" shares=""
for _ in 1 2 3 4 5 6 7 8; do cards+="${cards:+,}{\"total_bytes\":33672543601}"; done

job() {  # job CARD GiB NAME: a process that holds memory of a card
  (exec -a "$3" cat <&9) &
  jobs_started+=($!)
  local stat
  stat=$(cat "/proc/$!/stat")
  # shellcheck disable=SC2086  # the fields after the name, which may hold blanks
  set -- "$1" "$2" $! ${stat##*) }
  shares+="${shares:+,}{\"pid\":$3,\"start_ticks\":${23},\"card\":$1,\"used_bytes\":$(($2 << 30))}"
}
job 0 31 "python train.py --batch-size 64"
job 1 22 "python finetune.py"
job 1 6 "python serve.py"
job 2 17 "python train.py --resume"
mkdir -p "$HEADROOM_STATE_DIR/boxes"
printf '{"schema":1,"cards":[%s],"shares":[%s]}\n' "$cards" "$shares" > "$HEADROOM_STATE_DIR/boxes/demo.json"

show() { printf '\n$ %s\n' "$*"; "$@"; }
printf '\n$ headroom estimate llama-3.2-1b --seq 2048 --gpus "RTX 4090"\n'
headroom estimate llama-3.2-1b --seq 2048 --gpus "RTX 4090" || echo "(exit $?: it does not fit)"
printf '\n$ headroom fit llama-3.2-1b --seq 2048 --autocast bf16 --checkpointing full --gpus "RTX 4090"\n'
headroom fit llama-3.2-1b --seq 2048 --autocast bf16 --checkpointing full --gpus "RTX 4090"

export HEADROOM_GPUS=sim:8x31.36GiB@demo
show headroom
show headroom pick --need 20GiB --count 2
printf '\n$ headroom pick --need 32GiB\n'
headroom pick --need 32GiB || echo "(exit $?)"

printf '\n$ headroom train model=gpt-tiny batch_size=64 steps=24 --gpus sim:1x64MiB --inject ...\n'
headroom train model=gpt-tiny batch_size=64 steps=24 min_gpu_memory_mb=0 out="$HEADROOM_STATE_DIR/run" --gpus sim:1x64MiB \
  --inject oom@step=8:phase=backward --inject neighbour@step=16:30% 2>&1
