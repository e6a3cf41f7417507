# up    the whole stack with the demo run (or CONFIG=folder for a run of yours); Ctrl-C ends it
# test  everything that must hold, end to end
# check formatting, lint and types alone
# docs  the pages that are written from the code
# clean remove what the others made, downloads included
#
# Needed: make, and Python 3.11 or newer with venv (Debian and Ubuntu: python3 and python3-venv).

.PHONY: up test check docs clean

# The first that runs: a name on PATH may be a shim for a version that is not there.
PYTHON := $(or $(PYTHON),$(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; \
	done))
BIN := .venv/bin

up: .venv/stack.done
	@$(BIN)/python deploy/up.py

test: check
	@$(BIN)/pytest -q

check: .venv/dev.done
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary

docs: .venv/dev.done
	@$(BIN)/python docs/generate.py

clean:
	rm -rf .venv .stack .mypy_cache .ruff_cache .pytest_cache

# One virtual environment; `stack` and `dev` are the extras of pyproject.toml.
.venv/%.done: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed: install it, or name it with PYTHON=…' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: install python3-venv" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@echo 'installing Python packages into .venv …'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]' \
		|| { echo 'the Python packages could not be had (see above): is the package index reachable?' >&2; exit 1; }
	@touch $@
