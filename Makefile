PYTHON ?= .venv/bin/python

.PHONY: check format lint types test deep docs docs-links constraints

check: format lint types test

format:
	$(PYTHON) -m ruff format --check .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# Whole tables, browser, processes, exports, with the shapes of every call of attention checked.
deep:
	REGARD_CHECK_SHAPES=1 $(PYTHON) -m pytest -m 'not slow' tests regard benchmarks

# The site, with every notebook executed, in docs/_build/html/VERSION; a warning is an error.
docs:
	$(PYTHON) -m sphinx -W --keep-going -j auto -b html docs docs/_build/html/$$($(PYTHON) -c "import regard; print(regard.__version__)")

# Links and anchors inside the site; those to other hosts are left out.
docs-links:
	$(PYTHON) -m sphinx -W --keep-going -j auto -b linkcheck docs docs/_build/links

constraints:
	scripts/constraints
