# make train | test | check | docs | bench | fuzz | soak | faults: each makes .venv from pinned versions when it is missing or out of date.
# PYTHON=python3.12 says with which Python; by default with python3, or with the one that is in .venv already.
VENV := .venv
BIN := $(VENV)/bin
version = $(shell $(1) -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)
PYTHON ?= $(if $(call version,$(BIN)/python),$(BIN)/python,python3)

# Where PYTHON is another version than the one in .venv, that is made again.
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
.PHONY: $(VENV)/.installed
NEW := yes
endif

.PHONY: help train test check docs bench reproduce versions fuzz soak faults

help:
	@echo "make train [ARGS='--minutes 2']   train, evaluate, leave curve, table and film in runs/ (ARGS=--help: options)"
	@echo "make test  [ARGS='-k encoder']    run the tests; ARGS='-m slow': those that take long, which it leaves out"
	@echo "make check                        lint, format check and types"
	@echo "make docs                         the documentation site, in docs/_build/html; a warning is an error"
	@echo "make bench                        measure the speeds in docs/speed.md"
	@echo "make fuzz  [ARGS='--inputs 20000']  inputs at random to all that takes inputs"
	@echo "make soak  [ARGS='--million 50']  long runs of the environments"
	@echo "make faults [ARGS='--trials 5']   kill trainings and go on, and hostile files"
	@echo "make versions [ARGS=--all]        run tests with every Python, lowest and newest versions of the dependencies"
	@echo "make reproduce [ARGS='--list']    train and evaluate every row of the README's results, into runs/reproduce/"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "hitmac needs Python 3.11 or newer; set PYTHON=...")'
	$(if $(NEW),$(PYTHON) -m venv --clear $(VENV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,torchrl,rllib]'
	touch $@

train: $(VENV)/.installed
	$(BIN)/python train.py $(ARGS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow" $(ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html $(ARGS)

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(VENV)/.installed
	$(BIN)/python -m hitmac reproduce $(ARGS)

fuzz: $(VENV)/.installed
	$(BIN)/python -m tools.fuzz $(ARGS)

soak: $(VENV)/.installed
	$(BIN)/python -m tools.soak $(ARGS)

faults: $(VENV)/.installed
	$(BIN)/python -m tools.faults $(ARGS)

versions:
	$(PYTHON) tools/versions.py $(ARGS)
