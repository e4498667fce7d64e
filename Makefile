# Each target creates .venv first. Requirements: Python 3.11 or newer, and make.
#   make demo    run a small example
#   make check   lint, types and unit tests, for use while you work
#   make test    lint, types and all tests (servers, clusters, browser, documentation); required for every change
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo lint check test setup lock docs reports render bench clean

demo: $(READY)
	$(BIN)/monogram demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not integration"

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Monogram needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --prefer-binary -c constraints.txt -e '.[dev]'
	touch $@

# Writes the pinned versions for all supported versions of Python; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-annotate pyproject.toml -o constraints.txt

docs: $(READY)
	$(BIN)/python docs/picture.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# Runs the tables of the papers on the data sets in MONOGRAM_DATA; results are cached between runs.
PAPERS := deql landscape closed_form_edlae rg2 edlae
reports: $(READY)
	for paper in $(PAPERS); do \
	  out=docs/reproduction/$$paper; \
	  $(BIN)/monogram reproduce $$paper -o $$out.json -o $$out.md -o $$out.html || exit; \
	done

# Write the reports again from the cells that `make reports` stored; fits nothing.
render: $(READY)
	for paper in $(PAPERS); do \
	  out=docs/reproduction/$$paper; \
	  $(BIN)/monogram reproduce $$paper --cells $$out.json -o $$out.md -o $$out.html || exit; \
	done

bench: $(READY)
	$(BIN)/python benchmarks/foundation.py fit10k gowalla
	$(BIN)/python benchmarks/newcomer.py
	$(BIN)/python benchmarks/spectral.py
	$(BIN)/python benchmarks/tuning.py
	$(BIN)/python benchmarks/updates.py
	$(BIN)/python benchmarks/without_square.py
	$(BIN)/python benchmarks/time_kernel.py
	$(BIN)/python benchmarks/disk.py 6000 '60 MB'
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/gradient.py light_gcn mult_vae

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
