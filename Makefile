# make train | test | check | bench: each makes .venv from pinned versions when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help train test check bench

help:
	@echo "make train [ARGS='--minutes 2']   train, evaluate, leave curve, table and film in runs/ (ARGS=--help: options)"
	@echo "make test  [ARGS='-k encoder']    run the tests"
	@echo "make check                        lint, format check and types"
	@echo "make bench                        measure the speeds that the README names"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "hitmac needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

train: $(VENV)/.installed
	$(BIN)/python train.py $(ARGS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks $(ARGS)
