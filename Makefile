# make run    set up what is missing, then open the window
# make test   lint, types, import rules and all tests; no display, no network
# make package    installers for this system, into dist/
# make package-test    tries them on a clean system made for it; needs root, and Debian or Ubuntu
# make gpu-test   the engine's tests on a GPU made of software (benchmarks/notes/gpu.md); needs Debian 12 or newer
# make real    the tests on two models that other people made, which it downloads the first time; five minutes
# make bench    the figures that the README quotes; make bench-test    whether these benchmarks still run
# make real-bench   real models beside llama-server; FULL=1 asks all questions, BENCH="plain --busy 1" measures something else
# make proof    kills, damaged files, full disks and more, and all cases of matrices, in a quarter of an hour; make proof LONG=1    in hours (docs/reliability.md)
# SLIPSTREAM_BACKEND=cpu|cuda|metal|vulkan overrides the choice of the native build; PYTHON=… the interpreter.

BIN := .venv/bin
PYTHON ?= python3

.PHONY: run test lint format setup setup-dev bench bench-test package package-test gpu-test real real-bench proof clean

run: setup
	@$(BIN)/slipstream

# The checks of `lint` run beside the tests; what they find is shown at the end.
test: setup-dev
	@scripts/test

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup:
	@scripts/setup

setup-dev:
	@scripts/setup dev

bench: setup-dev
	$(BIN)/python -m benchmarks

bench-test: setup-dev
	$(BIN)/python -m pytest -p tests.conftest benchmarks/tests

package:
	@scripts/setup package
	@PYTHONPATH=packaging $(PYTHON) -m installer

package-test: setup-dev
	@scripts/package-test

gpu-test: setup-dev
	@scripts/gpu-test

real: setup-dev
	@scripts/real

real-bench: setup-dev
	$(BIN)/python -m benchmarks.real_bench $(or $(BENCH),spec-bench) $(if $(FULL),--full)

proof: setup-dev
	@LONG=$(LONG) scripts/proof

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
