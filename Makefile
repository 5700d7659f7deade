# Every target is one or two lines; what takes more stands in a script beside what it is about.
ARCH   := $(shell uname -m)
TARGET := $(ARCH)-unknown-linux-musl
BIN    := target/$(TARGET)/release/sanduk
CARGO  := CARGO_BUILD_TARGET=$(TARGET) cargo
FUZZ   ?= 200000
WORK   ?= ./work
ARGS   ?=

.PHONY: help setup image-base build demo test test-fast audit fuzz bench dist
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
	@$(CARGO) test --locked
	@sh tests/support/summary.sh

test-fast: setup ## formatting, lints, unit tests; no engine
	@cargo fmt --check
	@$(CARGO) clippy --locked --all-targets -- -D warnings
