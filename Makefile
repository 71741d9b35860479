# `make` alone lists what can be made. Needs python3 with venv, and git; everything else is installed into .venv.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Unless a person names an interpreter, .ci/install may take a faster build of the same version.
INSTALL := $(PYTHON) .ci/install $(if $(filter file,$(origin PYTHON)),--fastest) --venv $(VENV)
LOCK := $(INSTALL) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
CODE := project pools slots claims tests manage.py .ci/lock-fits .ci/install .ci/house
ARGS ?=
MORE ?=
NAME ?=
FILE ?=
SCENARIO ?=
# Tests start many processes: compiled modules halve the CPU time of each start.
COMPILED := unset PYTHONDONTWRITEBYTECODE; PYTHONPYCACHEPREFIX="$${PYTHONPYCACHEPREFIX:-$(CURDIR)/$(VENV)/pyc}"
# Six workers on two cores: a worker often waits for agents, pods and browsers.
WHOLE := -n 6 --dist loadscope --no-loadscope-reorder --durations=20

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev up test faults lint format types contracts house check bench snapshot doctor dump restore chromium tofu kube statements agent lock ci clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

$(VENV)/.run: requirements.txt requirements-uv.txt
	@$(INSTALL) run

$(VENV)/.dev: requirements-dev.txt $(VENV)/.run
	@$(INSTALL) dev

setup: $(VENV)/.run  ## install what Berth needs to run

setup-dev: $(VENV)/.dev  ## install what its tests and checks need, too

up: $(VENV)/.run  ## start Berth here: http://127.0.0.1:8000/ (BERTH_PORT, BERTH_HOME, BERTH_BIND, BERTH_SAMPLE=0)
	@echo "[make] starting Berth"
	@exec $(RUN) -m project.kernel.embedded.up

test: $(VENV)/.dev  ## run the tests; ARGS go to pytest: make test ARGS="tests/end_to_end -x"
	@echo "[make] starting the tests, with a PostgreSQL and a Valkey of their own"
	@$(COMPILED) $(RUN) -m pytest $(if $(ARGS),$(ARGS),$(WHOLE)) $(MORE)

faults: $(VENV)/.dev  ## inject faults into real stacks, hours: SCENARIO=kill-bind ROUNDS=5 ROUND=3 SEED=7 MINUTES=30 NAME=mine; REPORT=1 writes docs/faults.md
	@$(COMPILED) $(RUN) -m tests.faults.campaign $(SCENARIO) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ROUND),--round $(ROUND)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(NAME),--name $(NAME)) $(if $(REPORT),--report)

lint: $(VENV)/.dev  ## ruff: rules and format
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)

format: $(VENV)/.dev  ## let ruff mend what it can
	@$(RUN) -m ruff check --fix $(CODE)
	@$(RUN) -m ruff format $(CODE)

types: $(VENV)/.dev  ## mypy
	@$(RUN) -m mypy

contracts: $(VENV)/.dev  ## imports go one way
	@$(VENV)/bin/lint-imports --no-cache

house:  ## how readable the project is: figures beside their limits
	@.ci/house

check: $(VENV)/.dev  ## settings fit for production, and no migration missing
	@DJANGO_SETTINGS_MODULE=project.settings.test $(RUN) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	@BERTH_HOSTS=berth.example BERTH_HOME=$$(mktemp -d) DJANGO_SETTINGS_MODULE=project.settings.production $(RUN) manage.py check --deploy --fail-level WARNING

bench: $(VENV)/.run  ## measure: make bench NAME=bind
	@$(RUN) manage.py bench $(NAME) $(ARGS)

snapshot: $(VENV)/.dev  ## keep this version's schema with data, for the test of upgrades: make snapshot NAME=0.1.0
	@$(RUN) -m tests.upgrade.snapshot $(NAME)

doctor: $(VENV)/.run  ## look for broken invariants in the running installation
	@$(RUN) manage.py doctor $(ARGS)

dump: $(VENV)/.run  ## write the database to FILE (default: BERTH_HOME/backups) while Berth runs
	@$(RUN) -m project.kernel.embedded.backup dump $(FILE)

restore: $(VENV)/.run  ## go back to FILE while Berth is stopped; the present data moves aside
	@$(RUN) -m project.kernel.embedded.backup restore $(FILE)

chromium:  ## install the browser that the page tests use
	@.ci/chromium

tofu:  ## build OpenTofu and a provider for the tests on a real binary (needs Go; once, into ~/.cache/berth)
	@.ci/tofu

kube:  ## build the Kubernetes API server that tests use (needs Go; once, into ~/.cache/berth; or KUBEBUILDER_ASSETS names it)
	@.ci/kube

statements: $(VENV)/.dev  ## write the typed modules of the SQL files, after a change of either SQL or tables
	@$(RUN) -m tests.database.write_statements

agent:  ## write the agent as one file: dist/berth-agent.pyz
	@$(PYTHON) -m slots.agent_build dist/berth-agent.pyz

lock: $(VENV)/.run  ## write requirements*.txt anew from pyproject.toml
	@$(LOCK) --upgrade pyproject.toml -o requirements.txt
	@$(LOCK) --upgrade --group dev -c requirements.txt pyproject.toml -o requirements-dev.txt

ci:  ## everything that must be green
	@.ci/run

clean:  ## remove what was installed and cached; the state in BERTH_HOME stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis staticfiles
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
