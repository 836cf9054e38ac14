PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PEERS_IN := tests/benchmarks/peers/requirements
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input

# Runs a command; what it says is shown only when it fails.
quietly = said=$$($(1) 2>&1) || { printf '%s\n' "$$said" >&2; exit 1; }

# Tests and demos start hundreds of Python processes; without bytecode files each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check generate house bench bench-peers bench-scaling bench-soak bench-stages faults soak soak-hour lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## create .venv and install everything pinned; costs nothing the second time
	@:

demo: setup ## show the whole pipeline at work; ARGS="--log FILE" to use a log of your own
	@$(BIN)/scratchbus demo $(ARGS)

test: setup ## run the tests, several at a time; ARGS goes to pytest
	@$(BIN)/python -m pytest --numprocesses 4 --dist worksteal $(ARGS)

check: setup ## check format, lint, types, and the direction of imports
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/generate_blocking.py --check
	@$(BIN)/python tools/generate_help.py --check
	@$(BIN)/python tools/generate_reference.py --check

generate: setup ## write the blocking facades, the text of --help, and the reference of public names
	@$(BIN)/python tools/generate_blocking.py
	@$(BIN)/python tools/generate_help.py
	@$(BIN)/python tools/generate_reference.py

house: setup ## measure the code: its size, its rooms, and what one add and one active pass through
	@$(BIN)/python tools/house.py

bench: setup ## measure against bare redis-py; ARGS goes to the benchmark
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-peers: $(PEERS)/.installed ## measure against other libraries, in an environment of its own; ARGS="--rounds 7"
	@$(PEERS)/bin/python -m tests.benchmarks.peers $(ARGS)

bench-soak: setup ## work for half an hour at half the highest rate, and draw what that takes; ARGS="--seconds 600"
	@$(BIN)/python -m tests.benchmarks.soak --svg build/soak.svg $(ARGS)

bench-scaling: setup ## measure what an event costs on clusters of one, two and three masters; ARGS="--events 10000"
	@$(BIN)/python -m tests.benchmarks.scaling $(ARGS)

bench-stages: setup ## show where the time of one addition, fold, read and delivery goes; ARGS=--quick
	@$(BIN)/python -m tests.benchmarks.stages $(ARGS)

faults: setup ## kill, halt and cut off for minutes, and judge what all were told; ARGS="--seconds 600 --seed 7"
	@$(BIN)/python -m tests.faults.history $(ARGS)

soak-hour: setup ## work for an hour with limits on memory and disk; ARGS="--seconds 600 --memory-limit 200"
	@$(BIN)/python -m tests.faults.history --soak --seconds 3600 $(ARGS)

soak: setup ## run the long versions of the fault tests; ARGS goes to pytest
	@$(BIN)/python -m pytest -m faults $(ARGS)

lock: ## pin every dependency anew, with hashes; ARGS=--upgrade to move to newer versions
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	@uv pip compile --no-config --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
		--no-annotate --custom-compile-command "make lock" $(ARGS) --output-file requirements.lock pyproject.toml
	@uv pip compile --no-config --quiet --universal --python-version 3.11 --extra embedded --generate-hashes \
		--no-annotate --custom-compile-command "make lock" $(ARGS) --constraint requirements.lock \
		--output-file $(PEERS_IN).lock pyproject.toml $(PEERS_IN).in

clean: ## remove .venv and what the tools leave behind
	@rm -rf $(VENV) $(PEERS) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("scratchbus needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d: install one, then name it: make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "setup: installing the pinned packages into $(VENV), once; this takes less than a minute"
	@$(call quietly,$(PYTHON) -m venv --clear $(VENV))
	@$(call quietly,$(PIP) install --require-hashes --requirement requirements.lock)
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@$(call quietly,$(PIP) install --no-deps --no-build-isolation --editable .)
	@touch $@

$(PEERS)/.installed: $(PEERS_IN).lock
	@echo "bench-peers: installing the pinned packages into $(PEERS), once; this takes less than a minute"
	@$(call quietly,$(PYTHON) -m venv --clear $(PEERS))
	@$(call quietly,$(PEERS)/bin/python -m pip --quiet --disable-pip-version-check --no-input install \
		--require-hashes --requirement $<)
	@touch $@
