# `make demo` and `make test` set up everything they need in .venv; nothing else must be installed first but Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test test-slow lint format bench docs clean

demo: $(STAMP)
	$(BIN)/python -m examples.demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy core/vla_backend

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python -m vla_backend.reference > docs/hooks.md
	$(BIN)/python -m vla_train.config.reference docs/configuration.md

# torch first and alone: its CPU build must be in place before anything else asks for torch.
$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints-cpu.txt torch
	$(BIN)/python -m pip install --quiet -c constraints-cpu.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info runs
