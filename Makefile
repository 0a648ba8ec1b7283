# Start with `make demo` and `make test`. Requires Python 3.11+, a C++ compiler and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard native/*.* native/paper/* native/simd/*)

.PHONY: help setup demo test test-faults test-images test-torch browser lint format bench accuracy regimes random-problems reproduce reproduce-quick out-of-core cost search memory loading text unknown images characters cluster serving fuzz attack sanitize neon windows wheel image-root walk clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

# One environment for all targets, updated only if its prerequisites change.
$(VENV)/installed: pyproject.toml $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bitclass requires Python 3.11 or newer, found " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[frames,images,plots,dask,serve]" --group test --group lint
	@touch $@

setup: $(VENV)/installed  ## create the environment in .venv

demo: setup  ## recognise 2,200 characters in unseen typefaces, compared with linear models (less than a minute)
	$(BIN)/bitclass demo

test: setup lint  ## lint, type checks and all tests
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-faults: setup  ## tests that kill workers, clients and schedulers of a cluster (minutes)
	$(BIN)/python -m pytest -n 0 -m faults tests/cluster

$(VENV)/test-images: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test-images
	@touch $@

test-images: $(VENV)/test-images  ## compare networks with torch, which is installed for this (0.5 GB)
	BITCLASS_TEST_IMAGES=1 $(BIN)/python -m pytest tests/images/test_reference_networks.py

$(VENV)/docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@

.PHONY: docs
docs: $(VENV)/docs  ## build the documentation in build/docs; warnings are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs build/docs
	@echo "open build/docs/index.html"

test-torch: $(VENV)/test-images  ## tests with torch tensors, on CUDA if available
	$(BIN)/python -m pytest -n 0 tests/test_device.py

browser:  ## install onnxruntime-web for the test of examples/browser; page tests also require Chromium
	npm install --silent --no-audit --no-fund --prefix build/browser onnxruntime-web

lint: setup  ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --no-cache .  # the cache misses changes of first-party modules
	$(BIN)/mypy

format: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

bench: $(VENV)/bench  ## speed relative to other libraries (about 10 minutes)
	$(BIN)/python benchmarks/speed.py

accuracy: setup  ## accuracy on real datasets, compared with linear models (about 1 hour; resumable)
	$(BIN)/python benchmarks/accuracy.py

reproduce: setup  ## the paper's tables and figures (about 45 minutes on 2 idle cores; resumable)
	$(BIN)/python -m reproduction run --data $(or $(BITCLASS_DATA),../shared/data) --jobs 2 --time-limit 300 --out benchmarks/results/reproduction

regimes: setup  ## few rows, long tails, weights, wide rows: compared with linear models (about 20 minutes)
	$(BIN)/python benchmarks/regimes.py

random-problems: setup  ## 500 random problems, compared with LDA and ridge (about 10 minutes)
	$(BIN)/python benchmarks/random_problems.py

reproduce-quick: setup  ## the same on small data, in build/reproduction (about 2 minutes)
	$(BIN)/python -m reproduction run --quick --out build/reproduction

out-of-core: setup  ## train on a temporary file of 12 GB (about 15 minutes)
	$(BIN)/python benchmarks/out_of_core.py

cost: setup  ## time and memory with 1,000 to 1,000,000 classes (about 10 minutes; resumable)
	$(BIN)/python benchmarks/cost.py

search: $(VENV)/bench  ## search among 1,000,000 class codes, compared with faiss (about 15 minutes)
	$(BIN)/python benchmarks/search.py

memory: setup  ## memory of training on 1,000,000 rows, and of worker processes (about 5 minutes)
	$(BIN)/python benchmarks/memory.py

loading: setup  ## size and loading time of a model file
	$(BIN)/python benchmarks/loading.py

text: setup  ## wide sparse rows of text, compared with LinearSVC (about 15 minutes)
	$(BIN)/python benchmarks/text.py

unknown: setup  ## inputs of no known class, compared with other scores (about 30 minutes; resumable)
	$(BIN)/python benchmarks/unknown.py

images: setup  ## feature extraction, images per second (about 2 minutes)
	$(BIN)/python benchmarks/images.py

$(VENV)/characters: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group characters
	@touch $@

characters: $(VENV)/characters  ## Han characters, 1,000 to 76,295 classes, compared with other libraries (hours; resumable)
	$(BIN)/python benchmarks/characters.py

cluster: setup  ## a Dask cluster of 2 processes: overhead, traffic, worker kills (about 5 minutes)
	$(BIN)/python benchmarks/cluster.py

serving: setup  ## requests per second of the HTTP service, compared with LinearSVC (about 2 minutes)
	$(BIN)/python benchmarks/serving.py

fuzz: setup  ## read 100,000 damaged model files (about 3 minutes)
	$(BIN)/python benchmarks/fuzz_models.py --n 100000

attack: setup  ## attack service, updates and fits (about 20 minutes)
	for name in requests memory reloads kills fits; do $(BIN)/python benchmarks/attack.py $$name || exit 1; done

sanitize: setup  ## kernel tests under the address, undefined-behaviour and thread sanitizers
	native/tests/run_sanitizers.sh $(BIN)/python

neon:  ## kernel tests for 64-bit ARM, under emulation
	native/tests/run_neon.sh

windows:  ## kernel tests for Windows, under Wine
	native/tests/run_windows.sh

wheel:  ## build and test the source distribution and wheels, in dist/
	packaging/build_wheels.sh dist

image-root:  ## build the file system of the Docker image in build/image and test it (after make wheel; as root)
	rm -rf build/image
	packaging/make_image_root.sh build/image $(or $(IMAGE_PYTHON),python3.12) dist
	packaging/try_image_root.sh build/image

walk: setup  ## files, functions and lines that one reads to understand the main calls
	$(BIN)/python benchmarks/walk.py

clean:  ## remove the environment and build files
	rm -rf $(VENV) build
