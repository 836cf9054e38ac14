PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
TOOLS := .venv-tools
PEERS_IN := tests/benchmarks/peers/requirements
MEMORY_SERVER := @modelcontextprotocol/server-memory@2026.8.31
LOCKED := --no-deps --no-compile --require-hashes --requirement
UV := uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

# The pip that installs into .venv: that of the Python that made it, if it can; else one that ensurepip put there.
PIP = $$(test -x $(BIN)/pip && echo $(BIN)/pip || echo $(PYTHON) -m pip) --python $(BIN)/python --quiet \
	--disable-pip-version-check --no-input

# With COMPILED=1, tests and benchmarks run the wheel whose hot modules are compiled, and not the checkout.
COMPILED ?=
COMPILED_SITE := build/compiled
ifneq ($(COMPILED),)
export PYTHONSAFEPATH := 1
export PYTHONPATH := $(CURDIR)/$(COMPILED_SITE):$(CURDIR)
BUILT := $(COMPILED_SITE)/.built
TESTED := --override-ini pythonpath=$(COMPILED_SITE)
endif

# Runs a command; what it says is shown only when it fails.
quietly = said=$$($(1) 2>&1) || { printf '%s\n' "$$said" >&2; exit 1; }

# Tests and demos start hundreds of Python processes; without bytecode files each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check generate house compiled bench bench-growth bench-idle bench-memory-server bench-peers bench-scaling bench-soak bench-stages faults soak soak-hour browser strangers docs release-check lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## create .venv and install everything pinned; costs nothing the second time
	@:

demo: $(VENV)/.demo ## show the whole pipeline at work; ARGS="--log FILE" to use a log of your own
	@$(BIN)/scratchbus demo $(ARGS)

test: setup $(BUILT) ## run the tests, several at a time; ARGS goes to pytest
	@$(BIN)/python -m pytest $(TESTED) --numprocesses 3 --dist worksteal $(ARGS)

test-slow: setup $(BUILT) ## run what takes longer: kills, floods, whole daemons, more tests on the fake engine; ARGS goes to pytest
	@$(BIN)/python -m pytest $(TESTED) --numprocesses 4 --dist worksteal -m "slow and not (faults or browser)" $(ARGS)

check: setup ## check format, lint, types, and the direction of imports
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.generate_blocking --check
	@$(BIN)/python -m tools.generate_help --check
	@$(BIN)/python -m tools.generate_tools --check
	@$(BIN)/python -m tools.generate_types --check
	@$(BIN)/python -m tools.generate_reference --check

generate: setup ## write what is derived from the code: blocking facades, help, MCP tools, shipped types, reference
	@$(BIN)/python -m tools.generate_blocking
	@$(BIN)/python -m tools.generate_help
	@$(BIN)/python -m tools.generate_types
	@$(BIN)/python -m tools.generate_tools
	@$(BIN)/python -m tools.generate_reference

house: setup ## measure the code: its size, its rooms, and what one add and one active pass through
	@$(BIN)/python tools/house.py

bench: setup $(BUILT) ## measure against bare redis-py; ARGS goes to the benchmark, COMPILED=1 measures compiled modules
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-growth: setup ## measure how costs grow with the size of pages, logs and archives; ARGS="--size 100000"
	@$(BIN)/python -m tests.benchmarks.size_growth $(ARGS)

bench-idle: setup ## measure what each kind of process costs while nothing happens; ARGS="--seconds 60"
	@$(BIN)/python -m tests.benchmarks.idle $(ARGS)

bench-peers: $(PEERS)/.installed $(BUILT) ## measure against other libraries, in an environment of its own; ARGS="--rounds 7"
	@$(PEERS)/bin/python -m tests.benchmarks.peers $(ARGS)

bench-memory-server: setup ## measure the tools for facts against the MCP memory server; needs npm; ARGS="--rounds 7"
	@$(call quietly,npm install --no-audit --no-fund --no-package-lock --prefix build/memory-server $(MEMORY_SERVER))
	@$(BIN)/python -m tests.benchmarks.memory_server $(ARGS) build/memory-server

bench-soak: setup $(BUILT) ## work for half an hour at half the highest rate, and draw what that takes; ARGS="--seconds 600"
	@$(BIN)/python -m tests.benchmarks.soak --svg build/soak.svg $(ARGS)

bench-scaling: setup ## measure what an event costs on clusters of one, two and three masters; ARGS="--events 10000"
	@$(BIN)/python -m tests.benchmarks.scaling $(ARGS)

bench-stages: setup $(BUILT) ## show where the time of one addition, fold, read and delivery goes; ARGS=--quick
	@$(BIN)/python -m tests.benchmarks.stages $(ARGS)

faults: setup $(BUILT) ## kill, halt and cut off for minutes, and judge what all were told; ARGS="--seconds 600 --seed 7"
	@$(BIN)/python -m tests.faults.history $(ARGS)

soak-hour: setup ## work for an hour with limits on memory and disk; ARGS="--seconds 600 --memory-limit 200"
	@$(BIN)/python -m tests.faults.history --soak --seconds 3600 $(ARGS)

soak: setup ## run the long versions of the fault tests; ARGS goes to pytest
	@$(BIN)/python -m pytest -m faults $(ARGS)

browser: setup ## run all tests of the console in Chromium; ARGS goes to pytest
	@$(BIN)/python -m pytest -m "" tests/browser $(ARGS)

strangers: setup ## send 10,000 requests made from the OpenAPI document; ARGS goes to pytest
	@$(BIN)/python -m pytest -m strangers tests/edges/http $(ARGS)

docs: $(TOOLS)/.installed ## build the documents and the API reference as a site in build/site; fails at a broken link
	@$(call quietly,NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build $(ARGS))  # --quiet would not fail at a warning

compiled: setup $(COMPILED_SITE)/.built ## compile the modules that every addition passes, for `make test COMPILED=1`; needs a C compiler
	@:

$(COMPILED_SITE)/.built: $(VENV)/.installed pyproject.toml tools/compile_hook.py $(shell find scratchbus daemons config -name '*.py' -o -name '*.lua' -o -name '*.yaml')
	@rm -rf $(COMPILED_SITE)
	@$(call quietly,SCRATCHBUS_COMPILE=1 $(BIN)/python -m hatchling build --target wheel --directory $(COMPILED_SITE))
	@$(BIN)/python -m zipfile --extract $(COMPILED_SITE)/*.whl $(COMPILED_SITE)
	@touch $@

release-check: setup $(TOOLS)/.installed ## build what a release would be, and use it on every Python there is; ARGS=--quick
	@$(BIN)/python tools/release_check.py $(ARGS)

lock: ## pin every dependency anew, with hashes; ARGS=--upgrade to move to newer versions
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	@$(UV) --all-extras --group test --group dev $(ARGS) --output-file requirements.lock pyproject.toml
	@$(UV) --extra embedded --group build --constraint requirements.lock --output-file requirements-demo.lock \
		pyproject.toml
	@$(UV) --extra archive --extra fast --extra http --extra mcp --extra otel --constraint requirements.lock $(ARGS) \
		--output-file requirements-runtime.lock pyproject.toml
	@$(UV) --group build --constraint requirements.lock $(ARGS) --output-file requirements-build.lock
	@$(UV) --group docs --group release --group files $(ARGS) --output-file requirements-tools.lock
	@$(UV) --extra embedded --constraint requirements.lock $(ARGS) --output-file $(PEERS_IN).lock \
		pyproject.toml $(PEERS_IN).in

clean: ## remove .venv and what the tools leave behind
	@rm -rf $(VENV) $(PEERS) $(TOOLS) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python: requirements.lock requirements-demo.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("scratchbus needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d: install one, then name it: make PYTHON=python3.11" % sys.version_info[:2])'
	@$(call quietly,$(PYTHON) -m venv --clear --without-pip $(VENV))
	@$(PYTHON) -m pip --python $(BIN)/python --version >/dev/null 2>&1 || \
		{ $(call quietly,$(BIN)/python -m ensurepip --default-pip); }
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	@echo "setup: installing what scratchbus needs into $(VENV), once; this takes a few seconds"
	@$(call quietly,$(PIP) install $(LOCKED) requirements-demo.lock)
	@$(call quietly,$(PIP) install --no-deps --no-compile --no-build-isolation --editable .)
	@touch $@

$(VENV)/.installed: $(VENV)/.demo
	@echo "setup: installing what tests and tools need into $(VENV), once; this takes less than a minute"
	@$(call quietly,$(PIP) install $(LOCKED) requirements.lock)
	@touch $@

$(PEERS)/.installed: $(PEERS_IN).lock
$(TOOLS)/.installed: requirements-tools.lock
$(PEERS)/.installed $(TOOLS)/.installed:
	@echo "setup: installing the pinned packages into $(@D), once; this takes less than a minute"
	@$(call quietly,$(PYTHON) -m venv --clear $(@D))
	@$(call quietly,$(@D)/bin/python -m pip --quiet --disable-pip-version-check --no-input install $(LOCKED) $<)
	@touch $@
