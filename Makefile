# Every target that needs the virtual environment sets it up first; the second time costs nothing.
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# TVM takes half a gigabyte a process: more than four at once gains little.
WORKERS ?= $(shell n=$$(nproc); [ $$n -gt 4 ] && echo 4 || echo $$n)
export EDGEKIT_VENV := $(VENV)

.DEFAULT_GOAL := help
.PHONY: help setup libraries demo demo-local test test-slow test-all lint format coverage bench operator-tests node-tests \
        model-tests model-table faults test-pythons dist clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything needed into .venv (the other targets do this by themselves)
	@scripts/setup

demo: setup ## Run a trained network on an emulated Raspberry Pi 4, proven and timed [FILES="a b"]
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/filetype/demo $(FILES)

demo-local: setup ## Train a small model, build it, run it here, prove it and time it
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/digits/demo

test: setup ## Run the tests
	$(PYTEST) -n $(WORKERS)

test-slow: setup ## Run the tests that take more than half a minute each, a file at a time in each process
	$(PYTEST) -m slow -n $(WORKERS) --dist loadfile

test-all: test test-slow operator-tests node-tests model-tests ## Run every test there is

libraries: setup ## Build what boards offload to; without it, tests of that skip, and say so
	$(BIN)/edgekit toolchains build local
	$(BIN)/edgekit toolchains build rpi4

lint: setup ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup ## Put the code into the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: setup ## Run the tests and say which lines none of them reached
	$(PYTEST) -n $(WORKERS) --cov --cov-report=term-missing:skip-covered

bench: setup ## Print the figures that the docs quote
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.cpu

operator-tests: setup ## Run hundreds of random cases of each backend's operators
	$(PYTEST) -m operators -n $(WORKERS)

node-tests: setup ## Run every operator test that the onnx package ships; writes docs/onnx-operators.md
	$(BIN)/python benchmarks/onnx_nodes.py

model-tests: setup ## Run real trained models, each fetched once, against their own runtimes
	$(PYTEST) -m models

model-table: setup ## Build and time the same models; writes docs/models.md
	$(BIN)/python -m benchmarks.models

faults: setup ## Let everything about a farm fail, one thing after the other, and see that work goes on [ONLY="a b"]
	PYTHONPATH=.:tests $(BIN)/python -m faults $(ONLY)

test-pythons: ## Run the unit tests under every supported Python found on this machine
	@scripts/test-pythons

dist: setup ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build --installer pip --outdir dist

clean: ## Delete what building and testing left behind
	rm -rf build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Delete the virtual environments too
	rm -rf .venv .venv-3.*
