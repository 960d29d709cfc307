PYTHON ?= .venv/bin/python

.PHONY: check format lint types test constraints

check: format lint types test

format:
	$(PYTHON) -m ruff format --check .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

constraints:
	scripts/constraints
