# make run    set up what is missing, then open the window
# make test   lint, types, import rules and all tests; no display, no network
# make package-test    the package on a clean system: install, use, upgrade, remove; needs root, Debian or Ubuntu
# SLIPSTREAM_BACKEND=cpu|cuda|metal|vulkan overrides the choice of the native build; PYTHON=… the interpreter.

BIN := .venv/bin

.PHONY: run test lint format setup setup-dev bench package-test clean

run: setup
	@$(BIN)/slipstream

test: setup-dev lint
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest

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
	$(BIN)/python -m tests.benchmarks

package-test: setup-dev
	@scripts/package-test

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
