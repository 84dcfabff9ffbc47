# `make study` runs the embedded study, `make test` runs the tests, `make chaos` the tests that kill and interrupt.
# Each sets .venv up first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: study test chaos benchmark clean

study: $(INSTALLED)
	$(BIN)/python -m study.run splade_k_search

test: $(INSTALLED)
	$(BIN)/python -m pytest

chaos: $(INSTALLED)
	$(BIN)/python -m pytest -m chaos tests/integration

benchmark: $(INSTALLED)
	for name in angle_loss engine retromae_step splade_head; do $(BIN)/python -m benchmarks.$$name || exit 1; done

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv
