# Two commands do everything on a fresh machine with Python 3.11+ and make:
#   make demo    the main job: four ways to select participants, compared (a minute, with the installation)
#   make test    lint, types and tests
#   make docs    the documentation, into docs/_build/html
# More look closer:
#   make test-all    with the slow tests, and hypothesis' examples all of them
#   make coverage    which lines the tests of `make test` run
#   make oracles     values compared with those of other people's packages (part of `make test`)

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-dev
DOCS   := $(VENV)/.ready-docs
FLOWER_BIN := $(VENV)-flower/bin
FLOWER := $(VENV)-flower/.ready
ORACLES_BIN := $(VENV)-oracles/bin
ORACLES := $(VENV)-oracles/.ready
LOWEST ?= .venv-lowest
LOWEST_TESTS := tests/crypto tests/messages tests/cluster tests/commands tests/records tests/engine tests/network

.PHONY: demo test browser oracles docs reference papers test-all coverage test-lowest lint fuzz search bench hashes faults wheel clean

# Types are checked while the environments of Flower and of the oracles and Chromium are installed, which wait for their
# package index.
ifneq ($(filter test test-all,$(MAKECMDGOALS)),)
MAKEFLAGS += --jobs=3
endif

# Where Python is told to write no byte-code, as in many containers, each process of a run would compile all it imports.
demo test test-all: export PYTHONDONTWRITEBYTECODE :=
demo: $(READY)
	$(BIN)/testbed run examples/quickstart.yaml --out runs/quickstart --resume
	$(BIN)/testbed plot runs/quickstart & $(BIN)/testbed report runs/quickstart && wait $$!

test: $(DEV) $(FLOWER) lint browser oracles
	FLOWER_PYTHON=$(abspath $(FLOWER_BIN))/python $(BIN)/python -m pytest --ignore=tests/oracles -m "not slow" -n 2 --dist loadgroup --durations=60

# The report's page is tested in Chromium. Where there is none and we may, it is installed; else those tests are skipped.
browser: | $(READY)
	@command -v chromium >/dev/null || [ -n "$$CHROME" ] \
	    || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	        && apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends chromium; } \
	    || echo "no Chromium here: the tests of the report in a browser are skipped"

test-all: $(DEV) $(FLOWER) $(ORACLES) lint browser
	FLOWER_PYTHON=$(abspath $(FLOWER_BIN))/python TESTBED_TESTS=thorough $(BIN)/python -m pytest --ignore=tests/oracles -n 2 --dist loadgroup
	FLOWER_PYTHON=$(abspath $(FLOWER_BIN))/python TESTBED_TESTS=thorough $(ORACLES_BIN)/python -m pytest tests/oracles

# Values compared with those of jax-privacy, prv_accountant, byzfl, FLINT and Flower, which the testbed does not need.
oracles: $(ORACLES) $(FLOWER)
	FLOWER_PYTHON=$(abspath $(FLOWER_BIN))/python $(ORACLES_BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile tests/oracles

# By file where it is below 80 per cent, and in total. What runs in processes that tests start is not seen.
coverage: $(DEV) $(FLOWER) browser
	FLOWER_PYTHON=$(abspath $(FLOWER_BIN))/python $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadgroup --cov=testbed --cov=cluster --cov=workloads --cov=analysis --cov-report=
	@$(BIN)/python -m tests.coverage_table

# The documentation's site: warnings are errors, links within it are checked. Nothing is fetched, neither now nor when read.
docs: $(DOCS)
	$(BIN)/python -m sphinx --builder html --doctree-dir docs/_build/doctrees --fail-on-warning --keep-going --quiet docs docs/_build/html

# The crypto and cluster tests (and what lies between) with the lowest versions that pyproject.toml allows: minutes.
test-lowest:
	$(PYTHON) tests/lowest_versions.py > lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint lowest.txt --editable '.[dev]'
	$(LOWEST)/bin/python -m pip list
	$(LOWEST)/bin/python -m pytest -m "not slow and not launch" -n 2 --dist loadgroup $(LOWEST_TESTS)

# The searches of tests/fuzz with another seed each time, longer than in the tests.
fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz.messages --count 500000 --seed $$(date +%s)
	$(BIN)/python -m tests.fuzz.rounds --federations 2000 --seed $$(date +%s)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m tests.language
	$(BIN)/mypy

# A malicious server that is searched for: make search SECONDS=3600 SEED=7
SECONDS ?= 600
SEED    ?= 1
search: $(DEV)
	$(BIN)/python -m tests.search --seconds $(SECONDS) --seed $(SEED)

# All of them in one table, and in bench.json; python -m benchmarks.compare OLD.json NEW.json sets two such files side by side.
bench: $(DEV)
	$(BIN)/python -m benchmarks --out bench.json

# The reference pages that lie in docs/reference: every key, command and column. A test compares them with the code.
reference: $(READY)
	$(BIN)/python -m docs._ext.committed

# The tables of docs/papers, from the kept results of analysis/reproduction/results.
papers: $(READY)
	$(BIN)/python -m analysis.reproduction.pages docs/papers

# constraints.txt with the SHA-256 of every file, for this Python and machine: pip install --require-hashes -r requirements-hashed.txt
hashes: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report hashes.json --constraint constraints.txt '.[all]'
	$(BIN)/python tests/hashed_requirements.py hashes.json > requirements-hashed.txt; ended=$$?; rm hashes.json; exit $$ended

faults: $(DEV)
	$(BIN)/python -m benchmarks.faults

# What `ray up` and the container image install.
wheel: $(READY)
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# Debian keeps venv in a package of its own; where it is missing and we may, it is installed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV) || { apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python tests/install.py demo
	touch $(READY)

# What `make test` needs beside what `make demo` does: test tools, type checker, wandb, MLflow, a stand-in for S3, notebooks.
$(DEV): $(READY)
	$(BIN)/python tests/install.py test
	touch $(DEV)

# The environment of a Flower app, for the tests: flwr asks for other versions than the testbed, and takes the rest from there.
$(FLOWER): $(DEV) tests/workloads/flower/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)-flower
	$(FLOWER_BIN)/python tests/beside.py $(abspath $(BIN))/python
	$(FLOWER_BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/workloads/flower/requirements.txt
	touch $(FLOWER)

# Packages of other people whose values the tests compare: 0.4 GB, 20 seconds. They take the rest from the environment of
# the tests.
$(ORACLES): $(DEV) tests/oracles/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)-oracles
	$(ORACLES_BIN)/python tests/beside.py $(abspath $(BIN))/python
	$(ORACLES_BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement tests/oracles/requirements.txt
	$(ORACLES_BIN)/python -c 'import byzfl, flint, jax_privacy.matrix_factorization, prv_accountant' # else tests are skipped
	touch $(ORACLES)

$(DOCS): $(READY)
	$(BIN)/python tests/install.py docs
	touch $(DOCS)

clean:
	rm -rf $(VENV) $(VENV)-flower $(VENV)-oracles $(LOWEST) lowest.txt requirements-hashed.txt build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
