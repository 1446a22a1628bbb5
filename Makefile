# make demo               the photograph, equalised and sharpened on the best device here
# make test               the whole test suite, on every device here
# make test-gpu           what of it is about NVIDIA GPUs, which must be here
# make test-gpus          what needs two GPUs or more: copies, collectives, lost ranks, JAX and Dask over all of them
# make test-gpu-memcheck  the core of that under compute-sanitizer, which has to find a planted fault first
# make test-gpu-racecheck Programs of tiles of all kinds under racecheck and memcheck, a part a worker; racecheck has to find barriers left out first
# make long               what takes longer than CI may: generated and litmus Programs, hostile text, all architectures, PyTorch's operators, mutants; says at its end what it found
# make torch-tests        PyTorch's own tests of Inductor, with our backend in its place: FILE=inductor/test_torchinductor.py, EXPECTED=names of what is known to fail
# make bench-gpu          every figure for NVIDIA GPUs beside its peers
# make bench-gpus         all_reduce, copies between GPUs and a stencil on all of them, beside PyTorch
# make check              ruff, and mypy in strict mode
# make docs               the site, in out/site; its code runs on the CPU first, and a warning is an error
# make links              every link of the site that leads outside, asked for over the network
# make clean              removes what the others made
#
# Each makes .venv when it has to. Settings: PYTHON=python3.12  EXTRAS=wgpu  WORKERS=4  PYTEST_ARGS="-k axpy"  DEMO_ARGS="--device cpu"
# VYRE_STRESS=10 make test-gpu does ten times as much where memory must stay flat.

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

# Files that open devices, less those about other kinds; of their tests, those that are not about another kind. Some look at all that the GPU has
# free, so that nothing else may use it meanwhile.
GPU_TESTS := $(filter-out tests/drivers/wgpu/% tests/drivers/cpu/% tests/test_golden.py tests/test_planted.py tests/drivers/cuda/test_sanitizer.py, \
  $(sort $(shell grep -rlE --include='test_*.py' 'open_device|strict_device|device: (Device|Any)' tests)))
GPU_ALONE := tests/drivers/cuda/test_cuda_memory.py tests/drivers/cuda/test_cuda_stress.py
NOT_GPU := not [reference and not [cpu and not [wgpu
MEMCHECK_TESTS ?= tests/drivers/test_devices.py tests/drivers/many/test_sequences.py tests/drivers/cuda/test_cuda_sequences.py tests/test_filetests.py
TILE_PARTS ?= 12
SANITIZER ?= $(or $(shell command -v compute-sanitizer),/usr/local/cuda/bin/compute-sanitizer)

.PHONY: help demo test test-gpu test-gpus test-gpu-memcheck test-gpu-racecheck bench-gpu bench-gpus torch-tests long check docs site links clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/demo.stamp
	$(BIN)/python -m vyre_py demo $(DEMO_ARGS)

# The doors to other packages have processes of their own: PyTorch, JAX and Dask bring a million objects, which each collection of garbage walks, and change
# the process they are in. Both parts run, whatever becomes of the first; pytest ends with 5 where it has no tests, which is an error only of both.
test: $(VENV)/dev.stamp
	@results=; for part in --ignore=tests/interop tests/interop; do \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $$part $(PYTEST_ARGS) && result=0 || result=$$?; results+=$$result; done; \
	case $$results in 00|05|50) ;; *) echo "pytest ended with $${results:0:1} without the doors, and with $${results:1} for them" >&2; exit 1;; esac

test-gpu: $(VENV)/dev.stamp
	VYRE_REQUIRE_DEVICES=reference,cpu,cuda $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -k '$(NOT_GPU)' \
	  $(filter-out $(GPU_ALONE),$(GPU_TESTS)) $(PYTEST_ARGS)
	VYRE_REQUIRE_DEVICES=cuda $(BIN)/python -m pytest $(GPU_ALONE) $(PYTEST_ARGS)

# A process for each GPU; of JAX and Dask what is installed. One worker: ranks of several tests would take turns on the GPUs.
test-gpus: $(VENV)/dev.stamp
	VYRE_REQUIRE_DEVICES=cuda,gpus $(BIN)/python -m pytest tests/gpus $(PYTEST_ARGS)

# Memory goes back to the driver when it is freed, so that a use after that is found. Calls that the driver refuses are no findings: some tests ask for them.
test-gpu-memcheck: $(VENV)/dev.stamp
	VYRE_REQUIRE_DEVICES=cuda,sanitizer $(BIN)/python -m pytest tests/drivers/cuda/test_sanitizer.py
	VYRE_REQUIRE_DEVICES=cuda VYRE_DEVICE_POOL_BYTES=0 $(SANITIZER) --tool memcheck --error-exitcode 99 --report-api-errors no \
	  $(BIN)/python -m pytest -p no:cacheprovider -k '$(NOT_GPU)' $(MEMCHECK_TESTS) $(PYTEST_ARGS)

# Parts run beside each other, on the same GPU: both tools are slow by themselves, and compilers take half of the time.
test-gpu-racecheck: $(VENV)/dev.stamp
	VYRE_REQUIRE_DEVICES=cuda,sanitizer $(BIN)/python -m pytest -k racecheck tests/drivers/cuda/test_sanitizer.py
	for tool in racecheck 'memcheck --report-api-errors no'; do seq $(TILE_PARTS) | xargs -P $(WORKERS) -I PART $(SANITIZER) --error-exitcode 99 \
	  --tool $$tool $(BIN)/python -u tests/programs/gpu_tiles.py PART/$(TILE_PARTS); done

# All of it runs, whatever fails before.
long: $(VENV)/dev.stamp
	$(BIN)/python tests/long.py --workers $(WORKERS)

torch-tests: $(VENV)/dev.stamp
	$(BIN)/python tests/interop/torch_inductor_tests.py $(FILE) $(if $(EXPECTED),--expected $(EXPECTED))

bench-gpu: $(VENV)/dev.stamp
	$(BIN)/python -m tests.bench.cuda

bench-gpus: $(VENV)/dev.stamp
	$(BIN)/python -m tests.bench.bench_gpus

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

docs: $(VENV)/dev.stamp site
	VYRE_PAGES_DEVICE=cpu $(BIN)/python -m pytest -q -n 0 tests/test_site.py tests/test_guide.py tests/test_readme.py -k 'not reference and not wgpu and not cuda'

# Once its tools are installed it needs no network.
site: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs . out/site
	@echo "out/site/index.html"

# Notebooks are not run for it. Where no host is found at all, that is said once.
links: $(VENV)/docs.stamp
	@mkdir -p out; $(BIN)/python -m sphinx -b linkcheck -D nb_execution_mode=off --keep-going --quiet -c docs . out/links 2> out/links.log \
	  && echo "every link that leads outside answers" \
	  || { if grep -qv NameResolutionError out/links.log; then cat out/links.log >&2; else \
	  echo "make links: the hosts of these were not found, so none of them was asked for; is there a network?" >&2; \
	  sed -E 's/.*broken link: ([^ ]+).*/  \1/' out/links.log | sort >&2; fi; exit 1; }

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
	rm -rf $(VENV) build dist out/site out/links out/links.log *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
