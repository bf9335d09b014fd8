# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: FORCE demo test test-slow lint docs-check clean

# torch first: whatever depends on it then finds it installed and asks for nothing else.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 13) else f'identica needs Python 3.11 or 3.12, this is {v[0]}.{v[1]}: run make PYTHON=python3.11 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m identica demo --out runs/demo

# Two processes with one thread each: files go to whichever is free.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow or distributed or browser"

lint: $(STAMP)
	$(BIN)/python -m ruff check src tests benchmarks
	$(BIN)/python -m ruff format --check src tests benchmarks
	$(BIN)/python -m mypy

docs-check: $(STAMP)
	$(BIN)/python -m pytest -q -p no:cacheprovider --doctest-modules src
	$(BIN)/python -m pytest -q tests/test_docs.py

# The list of statistical tests in docs/, from the tests themselves.
docs/statistical-tests.md: $(STAMP) FORCE
	{ printf '# Statistical tests\n\nEach fails a correct implementation with at most the stated probability over the choice of its seed. The seeds are\nfixed, so that a test that passes once passes until the code changes. Made by `make docs/statistical-tests.md`.\n\n'; \
	  $(BIN)/python -m pytest -q --list-statistical -o addopts="" tests | grep '^|'; } > $@
FORCE:

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
