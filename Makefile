# All tasks of the project. `make` or `make help` lists them.
# Needs make and Python >= 3.11; everything else is installed into .venv or, for Go programs, into the user's cache directory.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo
# One more than cores, because tests of whole programs wait about half of their time.
WORKERS ?= $(shell expr $$(nproc) + 1)
# Whole hosts wait most of the time, for each other and for their clusters.
HOST_WORKERS ?= $(shell expr $$(nproc) + 3)
# In the order of the directories: otherwise files with few long tests would come last, and run on one worker only.
SPREAD := --dist loadfile --no-loadscope-reorder
# Arguments for pytest or the demo, for example: make test ARGS='tests/unit -k patch'
ARGS ?=

# Tests start hundreds of processes: without stored bytecode each would compile the whole program again.
unexport PYTHONDONTWRITEBYTECODE
# The Go that `make test-deps` installs into the virtual environment must be on the PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: $(DEMO) ## a cluster on this machine: create, scale, upgrade, replace a killed machine; ARGS=--exit deletes it at the end
	@$(BIN)/remuda demo $(ARGS)

# Without Go, tests run without them, unless REMUDA_REQUIRE_REAL=1.
define build_real
$(BIN)/python tests/real/build.py $(1) >/dev/null || { code=$$?; \
  [ "$${REMUDA_REQUIRE_REAL:-}" != 1 ] && [ $$code = 3 ] || exit $$code; \
  echo 'continuing without the real components: tests that need them are skipped' >&2; }
endef

.PHONY: test
test: $(STAMP) ## unit, integration, API (recorded answers of kube-apiserver), scenarios, one end-to-end test per feature. More: test-real, test-hosts, test-etcd
	@$(call build_real,kubernetes etcd)
	@$(BIN)/pytest -n $(WORKERS) $(SPREAD) -m 'not live and not replicated and not hosts' $(ARGS)

.PHONY: test-real
test-real: $(STAMP) ## the API tests against a real kube-apiserver, and tests with other projects' programs. RECORD=1 records new answers, ACCEPT=1 changed ones
	@$(call build_real,all)
	@REMUDA_TRUTH=$(if $(filter 1,$(RECORD)),record,live) ACCEPT=$(ACCEPT) $(BIN)/pytest -n $(WORKERS) $(SPREAD) \
	  -m 'not story and not replicated and not hosts' $(if $(filter tests%,$(ARGS)),,tests/api tests/e2e tests/real) $(ARGS)

.PHONY: test-hosts
HOSTS := $(shell grep -lr 'mark.hosts' tests --include='test_*.py')

test-hosts: $(STAMP) ## tests of whole hosts: the distribution on real etcd, clusters from the first host to deletion, containers with systemd
	@$(call build_real,all)
	@$(BIN)/pytest -n $(HOST_WORKERS) $(SPREAD) -m hosts $(HOSTS) $(ARGS)

.PHONY: test-etcd
REPLICATED := $(shell grep -lr 'mark.replicated' tests --include='test_*.py')

test-etcd: $(STAMP) ## tests of several servers, and the API tests on an etcd whose members are killed and paused at random
	@$(call build_real,kubernetes etcd)
	@REMUDA_TEST_STORE=etcd $(BIN)/pytest -n $(WORKERS) $(SPREAD) $(REPLICATED) tests/api $(ARGS)

.PHONY: test-deps
test-deps: $(STAMP) ## install the tests' dependencies: Debian packages (needs root) and a recent Go
	@scripts/test-deps.sh $(BIN)

.PHONY: lint
lint: $(STAMP) ## ruff, mypy --strict, the import contract, and whether the web page is built
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/page.py check

.PHONY: fmt
fmt: $(STAMP) ## format the code and apply ruff's fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(STAMP) ## write the generated pages: every field of a cluster, every command
	@$(BIN)/python scripts/reference.py

.PHONY: page
page: ## build the web page into the package; needs Node
	@$(PYTHON) scripts/page.py build

.PHONY: page-dev
page-dev: ## the web page with changes at once, on a running server; REMUDA_SERVER=https://127.0.0.1:8443
	@$(PYTHON) scripts/page.py dev

.PHONY: images
images: $(STAMP) ## build OCI images of the cluster agent, machine Jobs, the server and (with an etcd) our installers; a server on this machine serves them
	@$(BIN)/python -m remuda.images $(ARGS)

.PHONY: bench
bench: $(STAMP) ## measure speed and memory, beside a real kube-apiserver
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: soak
soak: $(STAMP) ## all cases of sampled tests; takes long. ARGS=tests/fuzz: the fuzzers, for REMUDA_FUZZ_MINUTES (60)
	@REMUDA_SOAK=1 $(BIN)/pytest -v -n $(WORKERS) $(SPREAD) -m 'soak or variant' --timeout 0 $(ARGS)

.PHONY: venv
venv: $(STAMP) ## create the virtual environment in .venv, or update it if pyproject.toml has changed

# Exact versions, so that a check has the same result on every machine and on every day.
PINS := scripts/constraints.txt

$(STAMP): pyproject.toml scripts/venv.sh $(PINS)
	@scripts/venv.sh $(PYTHON) $(VENV) test,lint $(PINS)
	@touch $@

.PHONY: pins
pins: ## update the pinned versions for tests and linters, within the limits of pyproject.toml
	@rm -f $(STAMP) && scripts/venv.sh $(PYTHON) $(VENV) test,lint && $(BIN)/pip install --quiet --upgrade --upgrade-strategy eager --editable '.[test,lint]'
	@$(BIN)/pip freeze --exclude-editable >$(PINS)
	@touch $(STAMP)

# The demo needs few dependencies.
$(DEMO): pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(PYTHON) $(VENV) demo
	@touch $@

.PHONY: clean
clean: ## remove the virtual environment, caches and builds inside the tree
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
