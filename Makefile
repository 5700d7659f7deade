# Every target is one or two lines; what takes more stands in a script beside what it is about.
ARCH   := $(shell uname -m)
TARGET := $(ARCH)-unknown-linux-musl
BIN    := target/$(TARGET)/release/sanduk
CARGO  := CARGO_BUILD_TARGET=$(TARGET) cargo
FUZZ   ?= 200000
KILLS  ?= 200
TIME   ?= 900
WORK   ?= ./work
ARGS   ?=

.PHONY: help setup image-base build demo test test-fast audit strace fuzz kill soak mutants bench sdk dist
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

setup: ## what a bare Debian machine lacks: musl target, musl-gcc, bubblewrap, openssl
	@sh .ci/setup

build: setup ## the static binary, in target/ARCH-unknown-linux-musl/release/
	@$(CARGO) build --release --locked --bin sanduk
	@ls -l $(BIN)

demo: setup ## the main job for real: built-in agent, sealed box, scripted model; no key needed
	@$(CARGO) build --locked --bin sanduk --example upstream
	@TARGET=$(TARGET) sh tests/support/demo.sh

test: test-fast audit ## everything: test-fast, audit, sealed boxes on bwrap
	@$(CARGO) test --locked --no-fail-fast
	@sh tests/support/summary.sh

test-fast: setup ## formatting, lints, unit tests; no engine
	@cargo fmt --check
	@$(CARGO) clippy --locked --all-targets -- -D warnings
	@$(CARGO) test --locked --lib --test wire --test json --test json_fuzz --test policy --test usage --test agents --test pages

audit: ## ledgers against the code, SBOM against the lock file
	@sh audit/check

strace: ## what runs really execute, open and connect to, by role, against audit/strace.txt; needs strace
	@command -v strace >/dev/null || { echo "make strace: strace is missing: apt install strace" >&2; exit 2; }
	@$(CARGO) test --locked --test strace

fuzz: ## seeded mutations of all that strangers write; FUZZ=N of each; h11 and tomllib as second readers
	@SANDUK_FUZZ=$(FUZZ) SANDUK_H11=1 SANDUK_TOMLLIB=1 $(CARGO) test --release --locked --test fuzz --test json_fuzz --test fuzz_answers --test fuzz_files --test fuzz_box -- --nocapture

kill: ## KILLS times (200) kill -9 of a relay under load, on one log: nothing is lost, nothing counted twice
	@SANDUK_KILLS=$(KILLS) $(CARGO) test --locked --test relay_kill -- --nocapture

soak: ## TIME seconds (900) of mixed load with faults on one relay, plain and TLS: nothing may grow
	@SANDUK_SOAK=$(TIME) $(CARGO) test --release --locked --test soak -- --nocapture

mutants: ## one line that guards something broken at a time: the test named with it must notice; an hour (ARGS=NAME for one)
	@TARGET=$(TARGET) python3 tests/support/mutants.py $(ARGS)

bench: setup ## ratios against nginx, the Python tool, bare bwrap, plain docker; all in one run
	@$(CARGO) build --release --locked --bin sanduk --example upstream
	@TARGET=$(TARGET) sh tests/support/bench.sh

sdk: setup ## official Anthropic and OpenAI SDKs (Python, JavaScript) through the relay; needs the network to install them
	@$(CARGO) build --locked --bin sanduk --example upstream
	@TARGET=$(TARGET) sh tests/support/sdk.sh

image-base: ## a base image of Debian's signed packages, where no registry can be reached; needs docker
	@sh .ci/setup docker

dist: setup ## release binary without paths of this machine, with checksum and SBOM, in build/
	@sh audit/rebuild

# The targets of the tool this one replaces, as one line each. The task goes by the environment: it may hold any character.
export TASK
.PHONY: sync qa test-all test-container test-live image image-rebuild run run-proxy shell ps logs stop clean distclean destroy system-start system-stop system-status
sync: build
qa: test-fast
test-all test-container: test
test-live:
	@echo "make test-live: not built yet: no test calls a real provider" >&2; exit 2
image: build ## the agent's image if it is missing (ARGS='--agent mini')
	@$(BIN) build $(ARGS)
image-rebuild: build
	@$(BIN) build --force $(ARGS)
run: build
	@$(BIN) run "$$TASK" -w $(WORK) $(ARGS)
run-proxy: build
	@$(BIN) run "$$TASK" -w $(WORK) --mode sealed $(ARGS)
shell ps stop destroy: build
	@$(BIN) $@ $(ARGS)
logs:
	@ls -lR "$${XDG_STATE_HOME:-$$HOME/.local/state}/sanduk/receipts" 2>/dev/null || echo "no run has left a log"
clean: build
	@$(BIN) clean $(ARGS)
	@rm -rf build
distclean: clean
	@rm -rf target build
system-start system-stop system-status: build
	@$(BIN) system $(@:system-%=%)
