# Every target sets up what it needs first, by scripts/requirements.tsv; the second time costs nothing.
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# One more than there are cores, because many tests wait. TVM takes half a gigabyte a process: more than
# four at once gains little.
WORKERS ?= $(shell n=$$(nproc); [ $$n -gt 3 ] && echo 4 || echo $$((n + 1)))
# Each process takes file after file, so that what the tests of a file share is built once. Files of
# long tests come first (tests/conftest.py), those of milliseconds last, so that all end together.
# At the end, the slowest tests are listed.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=60 --durations-min=5
STORY := tests/e2e/test_stories.py::test_from_a_model_file_to_a_deployed_verified_and_measured_bundle
# If one can't be built, its tests are skipped with a reason.
BUILD_LIBRARIES = @$(MAKE) --no-print-directory libraries || echo "make: tests of these libraries wait"
# Every broken link and anchor is told, and is an error.
SITE_OPTIONS := --quiet --fail-on-warning --keep-going --builder html --conf-dir docs --doctree-dir build/.doctrees
ARCHITECTURES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/edgekit-tests/architectures
export EDGEKIT_VENV := $(VENV)

.DEFAULT_GOAL := help
.PHONY: help setup setup-demo setup-dev libraries demo demo-local test test-fast test-slow test-all test-varied campaigns \
        lint format coverage bench operator-tests vulkan-tests node-tests node-tests-twin tflite-tests torch-tests torch-architectures graph-tests model-tests model-table gpu-check faults fuzz \
        test-pythons docs dist clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything that the tests need (the other targets install what they need by themselves)
	@scripts/setup test

setup-demo: ## Install what the demo needs
	@scripts/setup demo

setup-dev: ## Install what `make lint` and `make test-fast` need
	@scripts/setup dev

demo: setup-demo ## Run a trained network on an emulated Raspberry Pi 4, verify and time it [FILES="a b"]
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/filetype/demo $(FILES)

demo-local: setup-demo ## Train a small model, build, run, verify and time it on this host
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/digits/demo

test-fast: setup-dev ## Run the unit tests and one story, within a minute
	$(PYTEST) -n auto --maxprocesses 4 --dist worksteal tests/unit $(STORY)

test: setup ## Run the tests
	$(BUILD_LIBRARIES)
	$(PYTEST) $(PARALLEL)

# Half of the time of long tests is waiting: for devices, for time limits.
test-slow test-all: WORKERS = $(shell n=$$(nproc); [ $$n -gt 3 ] && echo 5 || echo $$((n + 2)))
test-slow: setup ## Run the long tests that `make test` leaves out
	$(BUILD_LIBRARIES)
	$(PYTEST) $(PARALLEL) -m slow

test-all: setup ## Run what CI runs: the tests and the long ones
	$(BUILD_LIBRARIES)
	$(PYTEST) $(PARALLEL) -m 'not nodes and not models and not operators and not varied'

test-varied: export EDGEKIT_THOROUGH := 1
test-varied: setup ## Run the tests with all their seeds, shapes and random cases
	$(BUILD_LIBRARIES)
	$(PYTEST) $(PARALLEL) -m '(varied or hypothesis) and not operators'

campaigns: test-varied operator-tests vulkan-tests node-tests node-tests-twin tflite-tests torch-tests torch-architectures graph-tests model-tests faults test-pythons ## Run the campaigns, which take hours

libraries: setup ## Build what boards offload to, once for all checkouts (20 minutes; `make test` does it too)
	$(BIN)/edgekit toolchains build local
	$(BIN)/edgekit toolchains build rpi4

lint: setup-dev ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup-dev ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: setup ## Run the tests and list the lines that none of them reached
	$(PYTEST) $(PARALLEL) --cov --cov-report=term-missing:skip-covered

bench: setup ## Print the figures that the docs quote
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.cpu

operator-tests: setup ## Run hundreds of random cases of each backend's operators
	$(PYTEST) -m operators -n $(WORKERS)

vulkan-tests: setup ## Build ncnn with Vulkan, once (five minutes of CPU), and run its tests
	$(BIN)/edgekit toolchains build local-vulkan
	$(PYTEST) -m '' -k 'vulkan or Vulkan' -n $(WORKERS) tests/integration/backends/test_ncnn_vulkan.py tests/integration/backends/test_contract.py

node-tests: setup ## Run every operator test that the onnx package ships; writes docs/onnx-operators.md
	$(BIN)/python benchmarks/onnx_nodes.py

node-tests-twin: setup ## Run one of these tests per operator on an emulated Raspberry Pi; writes the same page
	$(BIN)/python benchmarks/onnx_nodes.py --twin

tflite-tests: setup ## Run every operator of TFLite in every type; goes on where it was stopped; writes docs/tflite-operators.md
	PYTHONPATH=.:tests $(BIN)/python -m benchmarks.tflite_ops

torch-tests: setup ## Run every operator of PyTorch in every type; goes on where it was stopped; writes docs/torch-operators.md
	PYTHONPATH=. $(BIN)/python benchmarks/torch_ops.py

torch-architectures: setup ## Run networks of torchvision, timm and tutorials; goes on where it was stopped; writes docs/torch-architectures.md
	$(BIN)/pip install -q --upgrade --no-deps --target $(ARCHITECTURES) torchvision==0.28.0 timm==1.0.31 huggingface_hub==2.4.0 safetensors==0.8.0 pyyaml==6.0.3 filelock==4.2.11 fsspec==2026.9.0 tqdm==4.70.1
	PYTHONPATH=.:$(ARCHITECTURES) $(BIN)/python -m benchmarks.torch_architectures

graph-tests: setup ## Run random graphs by nnsmith on this host, in ncnn, in oneDNN and as C, against onnxruntime [SEEDS=A-B]
	PYTHONPATH=.:tests $(BIN)/python -m graphs $(or $(SEEDS),0-1999)

model-tests: setup ## Run real trained models, each fetched once, against their own runtimes
	$(PYTEST) -m models

gpu-check: ## Try all that needs a GPU of NVIDIA's, in nine minutes; says what is missing [OUT=DIR] [ONLY="a,b"] [SECONDS=540]
	@scripts/setup gpu || echo "make: steps say what they miss"
	PYTHONPATH=.:tests $(BIN)/python -m benchmarks.gpu_check --out $(or $(OUT),build/gpu-check) --only "$(ONLY)" --seconds $(or $(SECONDS),540)

model-table: setup ## Build and time the same models; writes docs/models.md
	$(BIN)/python -m benchmarks.models

fuzz: setup ## Fuzz every parser of external data [SECONDS=60 or TRIES=1500] [SEED=1] [ONLY="pt2 json"]
	PYTHONPATH=.:tests nice $(BIN)/python -W ignore -m fuzz --seconds $(or $(SECONDS),60) $(if $(TRIES),--tries $(TRIES)) $(if $(SEED),--seed $(SEED)) --only $(ONLY)

faults: setup ## Inject every fault of a farm in turn and check that work goes on [ONLY="a b"]
	PYTHONPATH=.:tests $(BIN)/python -m faults $(ONLY)

test-pythons: ## Run the unit tests under every supported Python found on this machine
	@scripts/test-pythons

docs: ## Build the documentation as a site, build/docs; a broken link is an error
	@scripts/setup docs
	$(BIN)/sphinx-build $(SITE_OPTIONS) . build/docs

dist: setup-dev ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build --installer pip --outdir dist

clean: ## Delete what building and testing left behind
	rm -rf build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Delete the virtual environments too
	rm -rf .venv .venv-3.*
