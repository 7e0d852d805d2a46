# The commands of this repository. `make` lists them; CI runs `make test`.
# Needs python3 (3.11 or newer) with venv, make and git. Everything else goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Processes that run tests at the same time. Those with real processes wait more than they work, and share a worker by file, and so one Spark.
WORKERS ?= 2
REAL_WORKERS ?= 4
# Tests start hundreds of processes: without this a machine that keeps no bytecode compiles this project anew for each of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench coverage mutation features reference fresh clean

help: ## List these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1|\2/' | while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

$(READY): pyproject.toml constraints.txt
	@echo "==> setup: .venv with the versions of constraints.txt"
	@$(PYTHON) -c 'import sys; sys.exit("oncemq needs Python 3.11 or newer; try: make PYTHON=python3.11 setup" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[spark,lab,postgresql,test,lint]"
	@touch $@

setup: $(READY) ## Make .venv and install everything the other targets need
	@echo "==> ready: . .venv/bin/activate, or $(BIN)/oncemq --help"

demo: $(READY) ## Kill a broker in the middle of its work and count the messages
	@$(BIN)/oncemq demo

test: lint ## What CI runs: lint, unit tests, simulated worlds, real processes
	@echo "==> tests: rules and machines"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist=worksteal -m "not real and not simulated"
	@echo "==> tests: simulated worlds"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist=worksteal -m "simulated and not real"
	@echo "==> tests: real processes"
	@$(BIN)/python -m pytest -q -n $(REAL_WORKERS) --dist=loadfile --no-loadscope-reorder -m real
	@echo "==> all green"

lint: $(READY) ## ruff (rules and format) and mypy --strict
	@echo "==> lint: ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "==> lint: mypy"
	@$(BIN)/mypy --no-error-summary

bench: $(READY) ## A short tour of `oncemq bench`
	@echo "==> bench: put"
	@$(BIN)/oncemq bench put
	@echo "==> bench: put, 1 KiB values"
	@$(BIN)/oncemq bench put --size 1024
	@echo "==> bench: get"
	@$(BIN)/oncemq bench get
	@echo "==> bench: restart"
	@$(BIN)/oncemq bench restart

coverage: $(READY) ## Branches of core and journal that no unit test takes: there is none
	@$(BIN)/python -m coverage run -m pytest -q -m "not real and not simulated"
	@$(BIN)/python -m coverage report

mutation: $(READY) ## Break core in 600 places, one at a time, and count how often a test notices
	@$(BIN)/python -m tests.mutation --mutants 600 --seed 1 --score-min 85

features: $(READY) ## Prove docs/coverage.md: run exactly the tests it names, feature by feature
	@echo "==> features: the page names tests that exist"
	@$(BIN)/python -m pytest -q tests/tidy/test_coverage_page.py
	@echo "==> features: those tests pass"
	@$(BIN)/python -m pytest -q $$(grep -oE 'tests/[A-Za-z0-9_/]+\.py::[A-Za-z0-9_:]+' docs/coverage.md | sort -u)

reference: $(READY) ## Write docs/configuration.md anew, from the code
	@$(BIN)/python scripts/configuration_page.py

fresh: ## As root: the two commands on a bare Debian, and how long each takes
	@scripts/fresh-machine.sh

clean: ## Remove .venv, caches and builds
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "==> clean"
