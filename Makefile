# The two commands that set everything up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= auto
# What the tests need of torch is its CPU build; where the default index has only larger ones, name another:
# make test TORCH_INDEX=URL
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
SIZE ?= 256MB
VLLM_PYTHON ?= $(BIN)/python

.PHONY: help demo test test-fast test-slow test-vllm test-openrlhf test-ray fuzz lint types layers check format bench bench-engine wheel-demo golden clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python setup.cfg pyproject.toml
	$(PIP) -e .
	touch $@

$(VENV)/.torch: $(VENV)/.core
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	touch $@

$(VENV)/.test: $(VENV)/.torch
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) -e '.[lint]'
	touch $@

demo: $(VENV)/.core ## oracle and keyword policies on the bundled world
	$(BIN)/grepseek demo

test: $(VENV)/.test ## all tests that need no GPU, no Ray and no OpenRLHF
	$(BIN)/python -m pytest -n $(WORKERS) -m "not openrlhf and not ray"

test-fast: $(VENV)/.test ## the tests to run while working, about two and a half minutes on two cores
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not openrlhf and not ray"

test-slow: $(VENV)/.test ## only the longer ones
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not openrlhf and not ray"

test-vllm: ## a tiny model in a real vLLM; VLLM_PYTHON is the Python of an environment that has it and the test extra
	PYTHONPATH=. $(VLLM_PYTHON) -m pytest -m vllm tests/smoke/test_vllm.py

test-openrlhf: ## the recipes against a real OpenRLHF and vLLM on the CPU; builds .venv-openrlhf, see .ci/openrlhf
	bash .ci/openrlhf

$(VENV)/.ray: $(VENV)/.test
	$(PIP) -e '.[ray]'
	touch $@

test-ray: $(VENV)/.ray ## a corpus in parts and rollout workers over local Ray clusters
	$(BIN)/python -m pytest -m ray tests/distributed tests/smoke/test_docs_distributed.py

fuzz: $(VENV)/.test ## property tests with the long profile, then 200,000 random commands and ten minutes of turns
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) -m "not openrlhf and not ray" -k "property or fuzz or test_formats or test_validator or test_argv"
	$(BIN)/python -m tests.fuzz --commands 200000 --seconds 600

lint: $(VENV)/.lint ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.lint ## types
	$(BIN)/mypy

layers: $(VENV)/.lint ## who may import whom
	$(BIN)/lint-imports

check: lint types layers ## everything but the tests

format: $(VENV)/.lint ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.core ## what a step costs on this machine
	$(BIN)/grepseek bench env

bench-engine: $(VENV)/.core ## every way to run a command against bash; SIZE=1.5GB for the published figures
	mkdir -p runs
	$(BIN)/grepseek bench engine --size $(SIZE) --out runs/bench-engine.json

golden: $(VENV)/.test ## write the golden files anew; read the diff before committing it
	$(BIN)/python -m pytest -q tests --update-golden -k golden

wheel-demo: $(VENV)/.test ## build a wheel, install it elsewhere, run the demo from it
	PYTHON=$(BIN)/python bash .ci/wheel_demo

clean: ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
