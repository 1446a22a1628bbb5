# make demo    the photograph, equalised and sharpened on the best device here
# make test    the whole test suite, on every device here
# make check   ruff, and mypy in strict mode
# make clean   removes what the others made
#
# Each makes .venv when it has to. Settings: PYTHON=python3.12  EXTRAS=wgpu  WORKERS=4  PYTEST_ARGS="-k axpy"  DEMO_ARGS="--device cpu"

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The extra that fits the NVIDIA driver, or nothing without one. The driver itself is asked, since nvidia-smi may be missing.
EXTRAS ?= $(shell $(PYTHON) -c 'import ctypes; version = ctypes.c_int(); \
  ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)); \
  print("cuda" if version.value >= 13000 else "cuda12")' 2>/dev/null)

comma := ,
empty :=
extras = $(subst $(empty) ,$(comma),$(strip $(1) $(EXTRAS)))

.PHONY: help demo test check clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/demo.stamp
	$(BIN)/python -m vyre_py demo $(DEMO_ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# mypy reads the wheel, not the checkout: there the floors are one package on disk, as they are for whoever installs it.
# A build folder left by an earlier wheel would put deleted modules into this one.
check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	rm -rf build
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch" "$(CURDIR)/build"' EXIT; \
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir "$$scratch/wheel" .; \
	$(BIN)/python -m zipfile -e "$$scratch"/wheel/*.whl "$$scratch/tree"; \
	cd "$$scratch/tree"; \
	$(abspath $(BIN))/mypy --strict --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache -p vyre_py \
	  | sed -E 's#^vyre_py/(ir|lowering|drivers)/#\1/#'

$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "vyre-py needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

# One environment, several sets of dependencies: each is installed when first wanted, and again when pyproject.toml changes.
$(VENV)/%.stamp: pyproject.toml setup.py | $(VENV)/python.stamp
	$(PIP) install --quiet --editable '.[$(call extras,$*)]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
