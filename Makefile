# The everyday commands. `make help` lists them.
PYTHON ?= python3
VENV := .venv
DEMO := .demo/venv
BIN := $(VENV)/bin

.PHONY: help setup test test-real unit lint types layers format schemas docs constraints bench demo up down wheel clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: ## make the development environment in .venv
	@$(PYTHON) scripts/setup_env.py --venv $(VENV) --extras demo,dev

test: setup lint types layers ## set up and run every check and every test
	$(BIN)/python -m pytest

test-real: setup ## the scenarios on a real Kubernetes control plane, built from source the first time (needs Go)
	@$(BIN)/python -m tests.real_cluster.build
	$(BIN)/python -m pytest tests/real_cluster

unit: setup ## only the tests that start no server
	$(BIN)/python -m pytest tests/unit tests/properties tests/architecture

lint: setup ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## strict type check
	$(BIN)/mypy

layers: setup ## which layer may import which
	$(BIN)/lint-imports

format: setup ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schemas: setup ## generate the JSON schemas of the kinds we send
	$(BIN)/python scripts/make_schemas.py

docs: setup ## write the reference pages that are made from the code
	$(BIN)/python scripts/make_docs.py

constraints: setup ## pin every dependency anew, with hashes
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --upgrade \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --output-file constraints.txt

bench: setup ## measure what the design promises, beside the peers
	$(BIN)/python benchmarks/parse_time.py
	$(BIN)/python benchmarks/wait_hub.py

demo: $(DEMO) ## run the retraining pipeline on the embedded platform, in a real Airflow
	@$(DEMO)/bin/python scripts/demo run

up: $(DEMO) ## start the demo's platform and Airflow and leave them running
	@$(DEMO)/bin/python scripts/demo up

down: $(DEMO) ## stop what `make up` started
	@$(DEMO)/bin/python scripts/demo down

.PHONY: $(DEMO)
$(DEMO):
	@$(PYTHON) scripts/setup_env.py --venv $(DEMO) --extras demo

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## remove environments, builds and caches
	rm -rf $(VENV) .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
