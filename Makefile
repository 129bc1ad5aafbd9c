# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test check format clean

demo: $(VENV)/demo-ready  ## train three encodings on two tasks, in minutes, and show the table
	$(BIN)/milepost study cope-table2 --scale mini

test: check  ## format, lint, types, imports, then every test
	$(BIN)/python -m pytest -n 2

check: $(VENV)/dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev-ready  ## rewrite the source as `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch comes first, and pinned, so that every clone runs the same version
$(VENV)/torch-ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "milepost needs Python 3.11 or later: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	touch $@

$(VENV)/demo-ready: $(VENV)/torch-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]"
	touch $@

$(VENV)/dev-ready: $(VENV)/torch-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
