# `make demo` and `make test` set up everything they need in .venv; nothing else must be installed first but Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PACKAGES := build/packages

ASCEND := .venv-ascend
ASCEND_STAMP := $(ASCEND)/installed
# torch_npu 2.7.1.post2 and mx_driving have wheels for Python up to 3.11.
PYTHON_27 ?= python3.11
ASCEND_27 := .venv-ascend-27
ASCEND_27_STAMP := $(ASCEND_27)/installed

.PHONY: demo demo-groot demo-closed-loop test test-slow test-faults test-ascend test-ascend-27 lint format bench docs clean

demo: $(STAMP)
	$(BIN)/python -m examples.demo

demo-groot: $(STAMP)
	$(BIN)/python -m examples.demo_groot

# The demo's model acts in Meta-World; needs libEGL or libOSMesa, and says so.
demo-closed-loop: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints-cpu.txt -e '.[sim]'
	$(BIN)/python -m examples.demo_closed_loop

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not faults and not ascend_sim"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# Real runs, killed and damaged at random; FAULT_SEED repeats the moments of an earlier run.
test-faults: $(STAMP)
	$(BIN)/python -m pytest -m faults --durations=0 -rP

# The unmodified torch_npu on a simulated CANN, see docs/ascend_simulation.md; needs a C++ compiler and no NPU.
test-ascend: $(ASCEND_STAMP)
	$(ASCEND)/bin/python -m vla_backend_ascend.cann_sim --devices 2 -- python -m pytest -m ascend_sim tests/ascend_sim

# The same with torch 2.7.1, torch_npu 2.7.1.post2 and mx_driving; PIP_ARGS_27 may name an index of CPU builds.
test-ascend-27: $(ASCEND_27_STAMP)
	$(ASCEND_27)/bin/python -m vla_backend_ascend.cann_sim --devices 2 -- python -m pytest -m ascend_sim tests/ascend_sim

lint: $(STAMP) $(PACKAGES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every package under its own name.
$(PACKAGES): pyproject.toml
	rm -rf $@
	mkdir -p $@
	sed -n '/^\[tool.setuptools.package-dir\]/,/^$$/s/^\(.*\) = "\(.*\)"$$/\1 \2/p' pyproject.toml | \
		while read -r name folder; do ln -s "../../$$folder" "$@/$$name"; done

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python -m vla_backend.reference docs
	$(BIN)/python -m vla_backend.pitfalls > docs/pitfalls.md
	$(BIN)/python -m vla_train.config.reference docs/configuration.md
	$(BIN)/python -m vla_train.conformance.report docs/plugins/conformance.md

# torch first and alone: its CPU build must be in place before anything else asks for torch.
$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints-cpu.txt torch
	$(BIN)/python -m pip install --quiet -c constraints-cpu.txt -e '.[dev]'
	@touch $@

# torch_npu must equal torch to the patch version. Its own requirement of torch would pull another build.
$(ASCEND_STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(ASCEND)
	$(ASCEND)/bin/python -m pip install --quiet --upgrade pip
	$(ASCEND)/bin/python -m pip install --quiet -c constraints-cpu.txt torch
	$(ASCEND)/bin/python -m pip install --quiet --no-deps \
		"torch_npu==$$($(ASCEND)/bin/python -c 'from importlib.metadata import version as v; print(v("torch").partition("+")[0])')"
	$(ASCEND)/bin/python -m pip install --quiet -c constraints-cpu.txt -e '.[dev]' attrs decorator psutil pyyaml scipy
	@touch $@

$(ASCEND_27_STAMP): pyproject.toml constraints-ascend-27.txt
	$(PYTHON_27) -m venv $(ASCEND_27)
	$(ASCEND_27)/bin/python -m pip install --quiet --upgrade pip
	$(ASCEND_27)/bin/python -m pip install --quiet -c constraints-ascend-27.txt $(PIP_ARGS_27) torch
	$(ASCEND_27)/bin/python -m pip install --quiet --no-deps torch_npu==2.7.1.post2 mx_driving==26.2.0.post2
	$(ASCEND_27)/bin/python -m pip install --quiet -c constraints-ascend-27.txt -e '.[dev]' attrs decorator psutil pyyaml scipy
	@touch $@

clean:
	rm -rf $(VENV) $(ASCEND) $(ASCEND_27) build *.egg-info runs
