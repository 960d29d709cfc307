PYTHON ?= .venv/bin/python

.PHONY: check format lint types test docs docs-links constraints

check: format lint types test

format:
	$(PYTHON) -m ruff format --check .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# The site, with every notebook executed, in docs/_build/html/VERSION; a warning is an error.
docs:
	$(PYTHON) -m sphinx -W --keep-going -j auto -b html docs docs/_build/html/$$($(PYTHON) -c "import regard; print(regard.__version__)")

# Links and anchors inside the site; those to other hosts are left out.
docs-links:
	$(PYTHON) -m sphinx -W --keep-going -j auto -b linkcheck docs docs/_build/links

constraints:
	scripts/constraints
