# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2

# What the compiled kernels are made from. Without a compiler milepost goes on without them.
KERNELS = CMakeLists.txt $(wildcard src/milepost/ops/native/kernels/* src/milepost/ops/native/kernels/policies/*)
COMPILER = $(firstword $(foreach name,$(CXX) c++ clang++,$(shell command -v $(name) 2>/dev/null)))
CHROMIUM = $(firstword $(foreach name,chromium chromium-browser google-chrome google-chrome-stable,$(shell command -v $(name) 2>/dev/null)))
INSTALL = $(BIN)/python -m pip install --quiet --no-build-isolation
EDITABLE = $(INSTALL) $(if $(COMPILER),,-C wheel.cmake=false) --editable

.PHONY: demo test check build browser docs test-without-kernels test-triton-3.6 sanitize format pictures clean

demo: $(VENV)/demo-ready  ## train six encodings on two tasks, in minutes, and show the table
	$(BIN)/milepost study cope-table2 --scale mini

test: check browser  ## format, lint, types, imports, then every test
	$(BIN)/python -m pytest -n 2

check: $(VENV)/dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

build: $(VENV)/dev-ready  ## compile what changed in the kernels, and say which this machine runs
	$(EDITABLE) . --no-deps
	@$(BIN)/python -c 'from milepost.ops import native; print(*native.isas() or [native.missing()])'

# Without one the tests of pages say that they were skipped
browser: $(VENV)/dev-ready  ## a Chromium for the tests of pages: the machine's own, or one of Playwright's
	@$(if $(CHROMIUM),true,$(BIN)/python -m playwright install chromium || \
		echo "no browser could be installed: the tests of pages will be skipped")

docs: $(VENV)/dev-ready  ## the documentation as a site, in build/docs
	$(BIN)/python -m sphinx -W --keep-going -q -E -a -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

# The next three install milepost into an environment of its own in build/, which sees the packages of
# $(VENV) behind it. Their tests run what is installed there. Without a compiler the kernels for GPUs are
# the same: their tests are left out.
test-without-kernels: $(VENV)/dev-ready  ## what a machine without a compiler gets: ops, encodings
	$(call environment,build/without-kernels)
	CC=/bin/false CXX=/bin/false $(call install,build/without-kernels)
	build/without-kernels/bin/python -c \
		'from milepost.ops import native; print(native.missing()); assert native.isa() is None'
	build/without-kernels/bin/python -m pytest -n 2 tests/ops tests/encodings tests/test_encodings.py \
		--ignore tests/ops/triton

# The oldest Triton that the kernels for GPUs are meant for lies before that of $(VENV). Its interpreter
# makes a number of an array with one entry, which NumPy warns of, and from 2.4 on refuses.
test-triton-3.6: $(VENV)/dev-ready  ## the kernels for GPUs with Triton 3.6: interpreted, compiled
	$(call environment,build/triton-3.6)
	$(call install,build/triton-3.6) -C wheel.cmake=false
	$(BIN)/python -m pip --python build/triton-3.6/bin/python install --quiet --no-deps \
		triton==3.6.0 'numpy<2.4'
	build/triton-3.6/bin/python -c \
		'import triton; print("Triton", triton.__version__); assert triton.__version__ == "3.6.0"'
	build/triton-3.6/bin/python -m pytest -n 2 tests/ops/triton tests/bench/test_compile.py \
		-W 'ignore:Conversion of an array with ndim:DeprecationWarning'

sanitize: $(VENV)/dev-ready  ## the kernels' tests with the address and undefined-behaviour sanitizers
	$(call environment,build/sanitize)
	$(call install,build/sanitize) -C cmake.define.MILEPOST_SANITIZE=ON -C build-dir=build/sanitize/cmake
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 build/sanitize/bin/python -m pytest -n 2 tests/ops/native

packages = $$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
environment = $(BIN)/python -m venv --without-pip $(1) && \
	echo $(call packages,$(VENV)) > $(call packages,$(1))/behind.pth
install = $(BIN)/python -m pip --python $(1)/bin/python install --quiet --no-build-isolation --no-deps .

format: $(VENV)/dev-ready  ## rewrite the source as `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pictures: $(VENV)/dev-ready browser  ## train a small model with each encoding, and draw it for its page
	$(BIN)/python docs/encodings/pictures.py
	$(BIN)/python docs/images/look.py

# torch comes first, and pinned, so that every clone runs the same version
$(VENV)/torch-ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "milepost needs Python 3.11 or later: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	touch $@

# What builds the kernels stays in the environment, so that a second build compiles only what changed
$(VENV)/build-ready: $(VENV)/torch-ready pyproject.toml
	$(BIN)/python -m pip install --quiet cmake ninja $$($(BIN)/python -c \
		'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	touch $@

$(VENV)/demo-ready: $(VENV)/build-ready $(KERNELS)
	$(EDITABLE) ".[plot]"
	touch $@

$(VENV)/dev-ready: $(VENV)/build-ready $(KERNELS)
	$(EDITABLE) ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
