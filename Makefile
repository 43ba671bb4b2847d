# Each target installs only what it needs into .venv, from pinned versions: `make train` the extra [train], `make test`
# also [test], `make docs` also [docs]. PYTHON=python3.12 selects the Python, by default that of .venv, or python3.
BIN := .venv/bin
version = $(shell $(1) -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)
PYTHON ?= $(if $(call version,$(BIN)/python),$(BIN)/python,python3)

# Containers often set this. Every process that tests start would then compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help train reproduce test check docs bench baselines fuzz soak faults closed_loop versions

help:
	@echo "make train [ARGS='--minutes 2']      train, evaluate, leave curve, table and film in runs/ (ARGS=--help: options)"
	@echo "make reproduce [ARGS='--list']       train and evaluate every row of the README's results, in runs/reproduce/"
	@echo "make test [ARGS='-k encoder']        run the fast tests; ARGS='-m slow' runs the others"
	@echo "make check                           lint, format and types"
	@echo "make docs                            build the documentation in docs/_build/html; a warning is an error"
	@echo "make bench                           measure the figures of docs/speed.md"
	@echo "make baselines ARGS='mappo --run-dir runs/mappo'   train by BenchMARL, see docs/benchmark.md (ARGS=--help: options)"
	@echo "make fuzz | soak | faults | closed_loop | versions: long checks, see tools/README.md"

# Another Python than the one in .venv makes it again.
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
.PHONY: .venv/.made
endif
.venv/.made:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "hitmac needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv --clear .venv
	touch $@

.venv/.%: .venv/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	touch $@

train: .venv/.train
	$(BIN)/python -m hitmac $@ $(ARGS)

reproduce: .venv/.train
	$(BIN)/python -m tools.$@ $(ARGS)

test: .venv/.test
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow" $(ARGS)

check: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.docs
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html $(ARGS)

bench: .venv/.test .venv/.benchmark
	$(BIN)/python -m benchmarks $(ARGS)

fuzz soak faults closed_loop: .venv/.test
	$(BIN)/python -m tools.$@ $(ARGS)

# In an environment of its own, without torchvision and av, which BenchMARL needs for pictures only.
BASELINES := .venv-baselines/bin/python
.venv-baselines/.made: pyproject.toml constraints-baselines.txt
	$(PYTHON) -m venv --clear .venv-baselines
	PIP_CONSTRAINT=constraints-baselines.txt $(BASELINES) -m pip install --quiet --editable . torchrl hydra-core pytest hypothesis
	PIP_CONSTRAINT=constraints-baselines.txt $(BASELINES) -m pip install --quiet --no-deps benchmarl
	touch $@

baselines: .venv-baselines/.made
	$(BASELINES) -W ignore -m hitmac.agents.training.benchmarl $(ARGS)

versions:
	$(PYTHON) tools/versions.py $(ARGS)
