# Every habit of the project. `make` or `make help` lists them.
# Needs make and Python >= 3.11; everything else goes into .venv or, for what others wrote in Go, into the user's cache directory.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo
# One more than cores: tests of whole programs wait as much as they work.
WORKERS ?= $(shell expr $$(nproc) + 1)
# In the order of the directories: files with few tests that take minutes would come last otherwise, and only one worker have them.
SPREAD := --dist loadfile --no-loadscope-reorder
# More for pytest or the demo, for example: make test ARGS='tests/unit -k patch'
ARGS ?=

# Tests start hundreds of processes: each would compile the whole program anew where the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE
# A Go that `make test-deps` put into the virtual environment must be found by what runs from it.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: $(DEMO) ## a cluster on this machine: made, grown, upgraded, a machine killed and replaced; ARGS=--exit takes it down at the end
	@$(BIN)/remuda demo $(ARGS)

# Where there is no Go they are gone without, unless everything is required.
define build_real
$(BIN)/python tests/real/build.py $(1) >/dev/null || { code=$$?; \
  [ "$${REMUDA_REQUIRE_REAL:-}" != 1 ] && [ $$code = 3 ] || exit $$code; \
  echo 'going on without the real components: tests that need them are skipped' >&2; }
endef

.PHONY: test
test: $(STAMP) ## unit, integration, API against recorded answers of kube-apiserver, scenarios, a story of each thing Remuda can do. The others: test-real, test-hosts, test-etcd
	@$(call build_real,kubernetes etcd)
	@$(BIN)/pytest -n $(WORKERS) $(SPREAD) -m 'not live and not replicated and not hosts' $(ARGS)

.PHONY: test-real
test-real: $(STAMP) ## the API tests against a real kube-apiserver, and what needs programs of others. RECORD=1 records new answers, ACCEPT=1 changed ones
	@$(call build_real,all)
	@REMUDA_TRUTH=$(if $(filter 1,$(RECORD)),record,live) ACCEPT=$(ACCEPT) $(BIN)/pytest -n $(WORKERS) $(SPREAD) \
	  -m 'not story and not replicated and not hosts' $(if $(filter tests%,$(ARGS)),,tests/api tests/e2e tests/real) $(ARGS)

.PHONY: test-hosts
HOSTS := $(shell grep -lr 'mark.hosts' tests --include='test_*.py')

test-hosts: $(STAMP) ## tests of whole hosts: the distribution on real etcd, clusters from their first host to their end, containers with systemd
	@$(call build_real,all)
	@$(BIN)/pytest -n $(WORKERS) $(SPREAD) -m hosts $(HOSTS) $(ARGS)

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

.PHONY: docs
docs: $(STAMP) ## the pages that are made of the program: every field of a cluster, every command
	@$(BIN)/python scripts/reference.py

.PHONY: images
images: $(STAMP) ## OCI images of the cluster agent, of machines' Jobs, of the server and (with an etcd) our installers; a server here serves them
	@$(BIN)/python -m remuda.images $(ARGS)

.PHONY: bench
bench: $(STAMP) ## one table of speeds and sizes, a real kube-apiserver beside ours
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: soak
soak: $(STAMP) ## the tests that take samples, in full; takes long. ARGS=tests/fuzz: the fuzzers, REMUDA_FUZZ_MINUTES (60) in all
	@REMUDA_SOAK=1 $(BIN)/pytest -v -n $(WORKERS) $(SPREAD) -m 'soak or variant' --timeout 0 $(ARGS)

.PHONY: venv
venv: $(STAMP) ## the virtual environment in .venv; does nothing when pyproject.toml is unchanged

# Exact versions, so that a check says the same on every machine and on every day.
PINS := scripts/constraints.txt

$(STAMP): pyproject.toml scripts/venv.sh $(PINS)
	@scripts/venv.sh $(PYTHON) $(VENV) test,lint $(PINS)
	@touch $@

.PHONY: pins
pins: ## take the newest versions of what tests and linters need that pyproject.toml allows
	@rm -f $(STAMP) && scripts/venv.sh $(PYTHON) $(VENV) test,lint && $(BIN)/pip install --quiet --upgrade --upgrade-strategy eager --editable '.[test,lint]'
	@$(BIN)/pip freeze --exclude-editable >$(PINS)
	@touch $(STAMP)

# Whoever only wants to have a look needs little.
$(DEMO): pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(PYTHON) $(VENV) demo
	@touch $@

.PHONY: clean
clean: ## remove the virtual environment, caches and builds inside the tree
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
