# From a clone to an answer: `make pod`. Needs Python 3.11 or later and git, nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
JOBS   ?= 2
BIN    := $(VENV)/bin
READY  := $(VENV)/.k3pod-installed

QUESTION ?= What does ls do?

.PHONY: pod down test check format man clean

pod: $(READY)
	$(BIN)/k3ctl init
	$(BIN)/k3ctl pod up --wait
	$(BIN)/k3ctl chat "$(QUESTION)"
	$(BIN)/k3ctl pod status

down: $(READY)
	$(BIN)/k3ctl pod down

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --warnings --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The manual pages: prose from man/source, options and tables from the code.
man: $(READY)
	$(BIN)/python -m man.typeset

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist

# The environment is made once and again whenever what it is made from changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[node,tui,plot,dev]'
	touch $@
