# Every target installs what it needs into .venv, here in the checkout, and does nothing twice.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
# What was compiled is kept, also where the environment forbids it for everything, as container images often do.
unexport PYTHONDONTWRITEBYTECODE

# The interpreter .venv is made with; empty: the first of python3.14 … python3.11, python3 that fits.
PYTHON ?=
# For run-cycle; for any relevo command; for pytest.
CYCLE ?=
ENTITY ?=
MONTH ?=
ARGS ?=
# For chaos.
MINUTES ?= 2
SEED ?=
PYTEST_ARGS ?=
# Tests of one file share what they set up; three processes a core, for many tests wait. One process, for a debugger: make test PARALLEL=
PARALLEL ?= -n $$(( 3 * $$(getconf _NPROCESSORS_ONLN) )) --dist loadfile --no-loadscope-reorder
# Without DATABASE_URL every target works on an embedded PostgreSQL, made when it is first needed.
RELEVO = RELEVO_DEMO=$${RELEVO_DEMO:-true} .venv/bin/relevo
MUTATORS = .venv/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[mutants]' --constraint constraints.txt
PEERS = .venv/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[bench]' --constraint constraints.txt

.PHONY: help run tick run-cycle migrate psql smoke restore test soak check fmt docs site texts dist examples clean model chaos ha bench bench-archive proof
.PHONY: installed installed-dev cycle-named month-named

help: ## say what each target does
	@echo 'Usage: make TARGET'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Settings come from the environment or .env. Words for the command: make tick ARGS="--runners reaper";'
	@echo 'for pytest: make test PYTEST_ARGS="-k reaper". Another Python: make test PYTHON=python3.12'

# exec: whoever ends make ends Relevo.
run: installed ## run every cycle until Ctrl-C (without DATABASE_URL: on an embedded PostgreSQL)
	@export RELEVO_DEMO=$${RELEVO_DEMO:-true}; exec .venv/bin/relevo run $(ARGS)

tick: installed ## run the cycles of a tick once, in order, and exit
	@$(RELEVO) tick $(ARGS)

run-cycle: cycle-named installed ## run one cycle once: make run-cycle CYCLE=reaper
	@$(RELEVO) run-cycle $(CYCLE) $(ARGS)

migrate: installed ## bring the database's schema up to date
	@$(RELEVO) migrate $(ARGS)

# In a process group of its own: Ctrl-C then belongs to psql, and make does not die under it.
psql: installed ## open psql on the same database
	@if [ -t 0 ]; then set -m; fi; $(RELEVO) psql $(ARGS); exit $$?

smoke: installed ## drive a tender to a sandbox's phone and back, on a running instance (its settings, or make run's)
	@RELEVO_DEMO=$${RELEVO_DEMO:-true} LOG_LEVEL=$${LOG_LEVEL:-warning} .venv/bin/python scripts/smoke.py $(ARGS)

restore: month-named installed ## bring a month back from the archive: make restore ENTITY=deliveries MONTH=2026-08
	@$(RELEVO) archive restore --entity $(ENTITY) --month $(MONTH) $(ARGS)

test: installed-dev ## run the tests, on every core
	@.venv/bin/pytest $(PARALLEL) $(PYTEST_ARGS)

# Without a package index the tests that need cosmic-ray are left out, and named.
soak: installed-dev ## run the tests with whole matrices: every kill, page and fault in every variation
	@.venv/bin/python -c 'import cosmic_ray' 2>/dev/null || $(MUTATORS) || true
	@RELEVO_TEST_WHOLE=1 .venv/bin/pytest $(PARALLEL) $(PYTEST_ARGS)

check: installed-dev ## check format, lint and types, advise on wording, then run the tests
	@.venv/bin/ruff format --check
	@.venv/bin/ruff check
	@.venv/bin/mypy
	@.venv/bin/python scripts/wording_advice.py
	@.venv/bin/pytest $(PARALLEL) $(PYTEST_ARGS)

fmt: installed-dev ## format the code and mend what the linter can mend
	@.venv/bin/ruff check --fix-only --quiet
	@.venv/bin/ruff format

docs: installed-dev ## write .env.example, the SBOM, and the pages of server/docs that are generated: settings, HTTP API, commands
	@.venv/bin/python scripts/generate_docs.py $(ARGS)

site: installed-dev ## write the guide as a static site into build/site
	@.venv/bin/python scripts/make_site.py

clients: installed-dev ## install the kits of server/clients, write their types from the OpenAPI document, build them, and write the page of their screens
	@.venv/bin/python scripts/generate_clients.py

texts: installed-dev ## collect the texts of the pages into locale/, and compile their translations
	@.venv/bin/python scripts/collect_texts.py

dist: installed-dev ## build all that is published into dist/, try each, rehearse the upgrade to it; ARGS=--help
	@.venv/bin/python scripts/make_dist.py $(ARGS)

examples: installed-dev ## run the examples of README and guide by the wheel in dist/; ARGS=WHEEL takes another
	@.venv/bin/python scripts/try_examples.py $(ARGS)

model: ## explore the specifications of scripts/model exhaustively, and their broken twins (needs Node.js); ARGS=--long
	@cd scripts/model && npm ci --ignore-scripts --prefer-offline --loglevel=error >/dev/null && node check.mjs $(ARGS)

chaos: installed-dev ## real processes under faults, judged by another program (needs Node.js): make chaos MINUTES=10 SEED=mine
	@PYTHONPATH=scripts:tests .venv/bin/python -m chaos --minutes $(MINUTES) $(if $(SEED),--seed '$(SEED)') $(ARGS)

mutants: installed-dev ## put small mistakes into a copy, one by one: each must turn a test red; ARGS=--help
	@PYTHONPATH=scripts .venv/bin/python -m mutants $(ARGS)

# Patroni lies apart from what Relevo needs, in a folder of its own.
ha: installed-dev ## three nodes of PostgreSQL under Patroni: switchover, kills, node death under load; ARGS=--help
	@test -e .venv/ha/.installed || { .venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --upgrade \
	  --target .venv/ha --requirement scripts/ha/requirements.txt && touch .venv/ha/.installed; }
	@PYTHONPATH=scripts .venv/bin/python -m ha $(ARGS)

proof: installed-dev ## write server/docs/proof.md from kept results; ARGS="--run --minutes 15" makes them anew
	@PYTHONPATH=scripts:tests .venv/bin/python -m proof $(ARGS)

# Without the other queues (no network) it measures the rest, and says so.
bench: installed-dev ## measure what everything costs, beside other queues, in a quarter of an hour; ARGS=--help
	@.venv/bin/python -c 'import asyncpg, pgqueuer, procrastinate' 2>/dev/null || $(PEERS) || true
	@PYTHONPATH=scripts .venv/bin/python -m bench $(ARGS)

bench-archive: installed-dev ## measure retiring, export and restore beside plain COPY
	@.venv/bin/python scripts/bench_archive.py $(ARGS)

clean: ## remove .venv, caches and build output; .relevo (your data) stays
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find server scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [ -e .relevo ]; then echo 'Left alone: .relevo, the data of the embedded PostgreSQL (rm -rf .relevo removes it).'; fi

installed: ## install what Relevo needs into .venv, and nothing else
	@PYTHON='$(PYTHON)' sh scripts/install.sh run

installed-dev:
	@PYTHON='$(PYTHON)' sh scripts/install.sh dev

cycle-named:
	@$(if $(strip $(CYCLE)),:,$(error Which cycle? Name it, for example: make run-cycle CYCLE=reaper))

month-named:
	@$(if $(and $(strip $(ENTITY)),$(strip $(MONTH))),:,$(error Which month? Name it, for example: make restore ENTITY=deliveries MONTH=2026-08))
