# Every habit of the project. `make` or `make help` lists them.
# Needs make and Python >= 3.11; everything else goes into .venv or, for what others wrote in Go, into the user's cache directory.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
# In the order of the directories: files with few tests that take minutes would come last otherwise, and only one worker have them.
SPREAD := --dist loadfile --no-loadscope-reorder
# More for pytest, for example: make test ARGS='tests/unit -k patch'
ARGS ?=

# A Go that `make test-deps` put into the virtual environment must be found by what runs from it.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: $(STAMP) ## a server on a temporary directory: a CRD, objects, list, watch, server-side apply; then stop clean
	@$(BIN)/python examples/demo.py

# Where there is no Go they are gone without, unless everything is required.
define build_real
$(BIN)/python tests/real/build.py $(1) >/dev/null || { code=$$?; \
  [ "$${REMUDA_REQUIRE_REAL:-}" != 1 ] && [ $$code = 3 ] || exit $$code; \
  echo 'going on without the real components: tests that need them are skipped' >&2; }
endef

.PHONY: test
test: $(STAMP) ## every test on one machine: unit, api and end to end; builds the real Kubernetes to compare with when there is a Go
	@$(call build_real,all)
	@$(BIN)/pytest -n $(WORKERS) $(SPREAD) -m 'not replicated' $(ARGS)

.PHONY: test-etcd
REPLICATED := $(shell grep -lr 'mark.replicated' tests --include='test_*.py')

test-etcd: $(STAMP) ## tests of several servers, and the API tests once more on an etcd whose members are killed and paused at random
	@$(call build_real,kubernetes etcd)
	@REMUDA_TEST_STORE=etcd $(BIN)/pytest -n $(WORKERS) $(SPREAD) $(REPLICATED) tests/api $(ARGS)

.PHONY: test-deps
test-deps: $(STAMP) ## what the tests need beside Python: Debian packages (asks for root) and a recent Go
	@scripts/test-deps.sh $(BIN)

.PHONY: lint
lint: $(STAMP) ## ruff, mypy --strict and the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: fmt
fmt: $(STAMP) ## put the code into shape and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: images
images: $(STAMP) ## the cluster agent's OCI image, from Debian's packages, without a container engine; a server here serves it
	@$(BIN)/python -m remuda.images $(ARGS)

.PHONY: bench
bench: $(STAMP) ## one table of speeds and sizes, a real kube-apiserver beside ours
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: soak
soak: $(STAMP) ## the tests that take samples, in full; takes long
	@REMUDA_SOAK=1 $(BIN)/pytest -n $(WORKERS) $(SPREAD) -m soak --timeout 0 $(ARGS)

.PHONY: venv
venv: $(STAMP) ## the virtual environment in .venv; does nothing when pyproject.toml is unchanged

$(STAMP): pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(PYTHON) $(VENV)
	@touch $@

.PHONY: clean
clean: ## remove the virtual environment, caches and builds inside the tree
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
