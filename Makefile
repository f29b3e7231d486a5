# What a person types. `make help` lists it.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
TSAN_OPTIONS = ignore_noninstrumented_modules=1:allocator_may_return_null=1:die_after_fork=0:suppressions=$(CURDIR)/tests/build/tsan-suppressions.txt

.DEFAULT_GOAL := help
.PHONY: help setup build demo test gpu-check settle trainers versions stress-lease stress-spread stress-folder fail-teams plan-peers plan-answers plan-table fewer-bits sparse-13b train-linear-flowers-robust train-lora-flowers-robust train-all-robust check survive rehearse-check peers fuzz-allocator nearest-codes bench format format-check lint asan tsan clang fuzz-readers docs docs-pictures dist changelog wheel python clean

help: ## This list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  awk -F '\t' '{ printf "  make %-28s %s\n", $$1, $$2 }'

setup: ## Debian packages and LibTorch (every target below does it by itself); TORCH=2.15.0 chooses
	@TORCH="$(TORCH)" scripts/setup.sh

build: setup ## Release build into build/ (headroom and headroom-engine in build/bin/)
	@scripts/build.sh release

demo: setup ## Will it fit, who has the memory, and a training that survives: on simulated GPUs
	@scripts/build.sh release headroom_cli headroom_engine
	@scripts/demo.sh

test: build ## Build and run every test
	@JOBS=$(JOBS) scripts/test.sh build

gpu-check: build ## What only a GPU can show, a line a check; JSON=FILE keeps the figures. Without a GPU: exit 69
	@build/bin/gpu_check $(if $(JSON),--json "$(JSON)")

stress-lease: build ## 64 processes take 1,000 leases each, a fifth is killed; 32 gangs on 8 cards
	@build/bin/lease_stress --processes 64 --rounds 1000
	@build/bin/lease_stress --processes 32 --rounds 50 --cards 8 --kill 5

stress-spread: build ## 8 and 20 trainings started together on 8 shared cards, 50 times
	@tests/train/spread.py build/bin/headroom --rounds 50

train-linear-flowers-robust: build ## A linear probe on Flowers-102; DATA=FOLDER, else a made-up set
	@scripts/recipe.sh linear-flowers

train-lora-flowers-robust: build ## LoRA adapters on Flowers-102; DATA=FOLDER, else a made-up set
	@scripts/recipe.sh lora-flowers

train-all-robust: build ## Four trainings at once, which share the cards by leases
	@scripts/recipe.sh all

check: build ## The machine, and what the first recipe would need
	@scripts/recipe.sh check

plan-peers: build ## 10,000 random searches over plans against a list of all plans, with its own clock
	@HEADROOM_PLAN_PEERS=10000 build/bin/core_tests --gtest_brief=1 --gtest_filter='*SearchPeers*:*CardsNeeded*'
	@HEADROOM_PLAN_SPACES=20 build/bin/estimate_tests --gtest_brief=1 --gtest_filter='RealSpaces.*'

plan-answers: build ## 1,000 answers of headroom plan on small models, each really run on simulated cards
	@tests/cli/plan_answers.py build/bin/headroom 1000

plan-table: build ## docs/reference/plans-by-size.md anew: 72 answers of headroom plan, and their arithmetic
	@scripts/plan_table.py build/bin/headroom

survive: build ## 1,000 random runs on a card and 1,000 on several: neighbours, refusals, long batches, cut budgets
	@HEADROOM_SURVIVE_RUNS=1000 build/bin/train_tests --gtest_brief=1 --gtest_filter='*RandomRuns*:*RandomTeams*'

stress-folder: build ## A training's folder through 12 events in 300 random orders, twice: kills, damage, full disks
	@HEADROOM_STORM_RUNS=300 build/bin/train_tests --gtest_brief=1 --gtest_filter='FolderStorm.*'

fewer-bits: build ## headroom train with each of quantize, dtype, optimizer and kind of training together
	@tests/train/fewer_bits.py build/bin/headroom --all

sparse-13b: build ## Packs Llama 2 13B in 4 bit as it is read, from a file without content
	@HEADROOM_SPARSE_13B=1 build/bin/models_tests --gtest_brief=1 --gtest_filter='SparseFile.*'

fail-teams: build ## 10,000 steps of 2 x 2 cards that fail once, at other requests of other cards
	@HEADROOM_FAILED_STEPS=10000 build/bin/train_tests --gtest_brief=1 --gtest_filter='Stages.ManyFailedSteps*:*StagesFail*'

settle: ## 10,000 backward passes on 8 cards that run out of memory, under the thread sanitizer
	@scripts/setup.sh clang
	@scripts/build.sh tsan sim_tests
	@TSAN_OPTIONS=$(TSAN_OPTIONS) OMP_NUM_THREADS=1 HEADROOM_SETTLE_ROUNDS=10000 \
	  build/tsan/bin/sim_tests --gtest_filter='Settle.*'

trainers: build ## headroom run with three trainers: every text, budget and way of mapping
	@tests/supervise/trainers_test.py build/bin/headroom build/lib/libfake_nvml.so build/lib/libclock_jump.so --all

rehearse-check: build ## Every program of tests/rehearse: a run on the CPU, rehearsals over what it left, and peaks of an H100
	@scripts/python.sh tests/rehearse/programs_test.py --all
	@scripts/python.sh tests/rehearse/h100_test.py --all

peers: build ## PyTorch's MemTracker on the test nets, live; then our peaks beside it
	@scripts/peers.sh
	@JOBS=$(JOBS) scripts/test.sh build -R '^peers\.'

versions: ## Build and test with PyTorch 2.12 to 2.15, too: in full with 2.15 (scripts/versions.sh)
	@scripts/setup.sh
	@scripts/versions.sh

fuzz-allocator: build ## 20,000 random streams: our allocator model against PyTorch's own
	@build/bin/allocator_oracle fuzz --streams 20000 --jobs $(JOBS) --minimise

nearest-codes: build ## Every float from -1 to 1 gets the nearest code of the 4 and 8 bit tables
	@build/bin/nearest_codes

bench: build ## Benchmarks: figures with machine and settings, no gates
	@scripts/bench.sh

fuzz-readers: ## Ten minutes of libFuzzer over the readers of traces and of safetensors files
	@scripts/setup.sh clang
	@scripts/fuzz-readers.sh

format: setup ## Format the C++ code
	@git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs clang-format-14 -i

format-check: setup ## Fail if `make format` would change something
	@git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs clang-format-14 --dry-run --Werror

lint: format-check ## clang-format and clang-tidy
	@scripts/setup.sh clang
	@scripts/lint.sh

asan: ## Build and test with clang's address and undefined-behaviour sanitizers
	@scripts/setup.sh clang
	@scripts/build.sh asan
	@ASAN_OPTIONS=allocator_may_return_null=1 \
	  LSAN_OPTIONS=print_suppressions=0:suppressions=$(CURDIR)/tests/build/lsan-suppressions.txt \
	  JOBS=$(JOBS) scripts/test.sh build/asan

tsan: ## Build and test with clang's thread sanitizer
	@scripts/setup.sh clang
	@scripts/build.sh tsan
	@TSAN_OPTIONS=$(TSAN_OPTIONS) OMP_NUM_THREADS=1 \
	  JOBS=$(JOBS) scripts/test.sh build/tsan

clang: ## Build and test with clang 14
	@scripts/setup.sh clang
	@scripts/build.sh clang
	@JOBS=$(JOBS) scripts/test.sh build/clang

docs: build ## Check the docs: links, examples, generated tables
	@tests/build/docs_test.py
	@scripts/docs.py

docs-pictures: build ## Make the pictures of README and guides anew (needs chromium)
	@scripts/setup.sh pages
	@scripts/docs-pictures.py

dist: build ## A folder that runs elsewhere: dist/headroom-VERSION
	@scripts/dist.sh

changelog: ## Check changes/; VERSION=0.2.0 DATE=2027-01-31 makes their section of CHANGELOG.md
	@scripts/changelog.py $(if $(VERSION),--release "$(VERSION)" "$(DATE)",--check)

wheel: build ## dist/headroom-VERSION-*.whl: the Python package, with the command line
	@scripts/wheel.sh

python: build ## Tests of the Python face, in an environment of their own (.venv-peers), and of the wheel
	@scripts/python.sh
	@JOBS=1 scripts/test.sh build -R '^(python|rehearse)\.'
	@tests/python/wheel.sh

clean: ## Remove what was built (not .venv)
	@rm -rf build dist
