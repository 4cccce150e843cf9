# Each target sets up what it needs. Offline, where the python3 at hand has torch already, nothing is downloaded.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SANITIZE ?= thread
CASES ?= -missing_edge
ARCHS ?= $(SLUICE_ARCHS)
SUITES ?= transform conv1d_depthwise decode conv1d_dense conv_transpose1d filter2d schedules depth overhead stream stream_devices random models codecs
# Targets that only check what is there can use an interpreter without a venv.
ANY_PYTHON := $(shell test -x $(VENV)/bin/python && echo $(VENV)/bin/python || echo $(PYTHON))
# A worker for each core, where pytest-xdist is there.
WORKERS = $(shell $(RUN) -c "import importlib.util as u; print('-n auto --dist worksteal' if u.find_spec('xdist') else '')")
# Compilers that ccache stands in for, where Debian's package of it is there.
CCACHES := $(wildcard /usr/lib/ccache)
# Without an NVIDIA driver the demo runs on the CPU, and a build of the CPU libraries is enough; a full one serves as well.
DRIVER := $(wildcard /dev/nvidiactl /dev/dxg /proc/driver/nvidia/version)
DEMO_BUILD := $(if $(or $(DRIVER),$(filter 1,$(SLUICE_WITH_CUDA)),$(wildcard build/ready)),build/ready,build/cpu-ready)
# Chains that come linked are for GPUs that run them, and for wheels. Tests link two lists themselves.
PRELINK := $(or $(SLUICE_PRELINK),$(if $(DRIVER),ON,OFF))
NATIVE := $(shell find kernels ops tests/cpp -type f 2>/dev/null) CMakeLists.txt setup.py pyproject.toml

# ccache reuses what another clone compiled: paths are relative, and line tables do not make it hash the clone's folder.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Clones also share prelinked chains, whose names are digests, and mypy's reading of torch: it compares contents where
# paths differ.
SHARED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sluice-build
export MYPY_CACHE_DIR ?= $(SHARED)/mypy
export SLUICE_PRELINK_CACHE ?= $(SHARED)/prelinked

.DEFAULT_GOAL := help
.PHONY: help setup build demo test wheel bench lint format gpu-check receipt results sanitize clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

demo: $(DEMO_BUILD)  ## set up, run the main job on a real recording, on the GPU if there is one
	$(RUN) -m sluice demo

test: build  ## set up, run the tests
	OMP_NUM_THREADS=1 PATH="$(CCACHES:%=%:)$$PATH" $(RUN) -m pytest $(WORKERS) tests

setup: $(VENV)/ready  ## make the virtual environment

$(VENV)/ready: tools/setup_venv.sh pyproject.toml
	@PYTHON=$(PYTHON) tools/setup_venv.sh $(VENV)
	@touch $@

build: build/ready  ## compile the libraries and install the package in place

build/ready: $(VENV)/ready $(NATIVE)
	@SLUICE_TESTS=ON SLUICE_PRELINK=$(PRELINK) PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) tools/build.py
	@touch $@

# In the same folder, where a full build goes on from what is compiled here.
build/cpu-ready: $(VENV)/ready $(NATIVE)
	@SLUICE_WITH_CUDA=0 PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) tools/build.py
	@rm -f build/ready
	@touch $@

# A missing edge is a planted race, which the thread sanitizer reports.
sanitize: $(VENV)/ready  ## tests/cpp under the host compiler's sanitizers: SANITIZE=thread, or address,undefined
	PATH="$(abspath $(VENV)/bin):$$PATH" cmake -S . -B build/sanitize-$(SANITIZE) -DSLUICE_SANITIZE=$(SANITIZE) -DSLUICE_TESTS=ON \
	  -DSLUICE_WITH_CUDA=0
	PATH="$(abspath $(VENV)/bin):$$PATH" cmake --build build/sanitize-$(SANITIZE) --parallel --target sluice_test_kernels
	build/sanitize-$(SANITIZE)/sluice_test_kernels $(CASES)

wheel: $(VENV)/ready  ## build dist/*.whl and audit it (ARCHS=release: code for every generation of GPUs)
	rm -rf dist build/lib build/bdist*
	SLUICE_ARCHS=$(ARCHS) SLUICE_TESTS=ON SLUICE_PRELINK=ON PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) -m pip wheel -qq --no-build-isolation --no-deps --no-index --wheel-dir dist .
	$(RUN) tools/audit_wheel.py dist/*.whl

bench: build  ## measure on a GPU: SUITES="transform conv1d_depthwise ..."
	$(RUN) -m sluice bench $(SUITES)
	$(MAKE) results

results:  ## write the tables and pictures of README and docs/ (LOSE="peer ..." gives up a peer's times)
	@$(ANY_PYTHON) tools/lost_peers.py $(LOSE)
	@$(ANY_PYTHON) tools/write_results.py
	@$(ANY_PYTHON) tools/draw_results.py
	@$(ANY_PYTHON) tools/draw_streams.py

lint: build  ## check formats, types and style
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) tools/clang_format.py --check
	$(RUN) tools/lint_sentences.py

format: $(VENV)/ready  ## format all sources
	$(RUN) -m ruff check --fix --quiet .
	$(RUN) -m ruff format .
	$(RUN) tools/clang_format.py

gpu-check: build  ## on a GPU: all tests, compute-sanitizer, and the receipt (PARTS="pointwise memcheck ..." picks parts)
	$(RUN) tools/gpu_check.py $(PARTS)

receipt:  ## does tests/gpu/receipt.json match the tree?
	@$(ANY_PYTHON) tools/receipt.py

clean:  ## remove what was built
	rm -rf build dist python/*.egg-info python/sluice/*.so
