# `make study` runs the embedded study, `make test` runs the tests and what is quick to check.
# Each target sets .venv up first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
INSTALLED_DOCS := .venv/.installed-docs
# Two test processes at a time leave torch one thread each. How they share the tests is said in tests/conftest.py.
PARALLEL := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

.PHONY: study test unit all-tests chaos lint types docs reference site site-check coverage benchmark clean

study: $(INSTALLED)
	$(BIN)/python -m study.run splade_k_search

test: lint types docs all-tests

# Seconds: no Ray, no servers, no training.
unit: $(INSTALLED)
	$(PARALLEL) tests/unit study trainables

all-tests: $(INSTALLED)
	$(PARALLEL) tests/integration tests/contract tests/parity tests/unit study trainables

# Kills, outages and lost nodes, on clusters of their own.
chaos: $(INSTALLED)
	$(BIN)/python -m pytest -m chaos tests/integration

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/python -m mypy

docs: $(INSTALLED)
	$(BIN)/python .ci/check_docs.py

# Pages that are made from the code.
reference: $(INSTALLED)
	$(BIN)/python docs/reference.py
	$(BIN)/python -m study.protocol.summary_page

# build/site/index.html; a link that leads nowhere fails, which it would not with --quiet.
site: $(INSTALLED_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# Every page of it in Chromium: readable by all, as wide as its window, light, dark and on a phone.
site-check: site
	$(BIN)/python .ci/check_site.py

# Lines that no test in this process reached: htmlcov/index.html.
coverage: $(INSTALLED)
	$(BIN)/python -m pytest --cov=study --cov=trainables --cov-report=html --cov-report=term:skip-covered

benchmark: $(INSTALLED)
	for name in angle_loss engine retromae_step splade_head; do $(BIN)/python -m benchmarks.$$name || exit 1; done

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv
