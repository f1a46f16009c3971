# `make help` lists the targets. Everything is installed into .venv; all local state is in var/.
PYTHON ?= python3
DATA ?= digits
PORT ?= 8000
BIN := .venv/bin
MANAGE := $(BIN)/python manage.py
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo up test test-fast pictures reproduce lint clean
CATALOGUE := locale/de/LC_MESSAGES/django.mo
# Tests on SQLite and the file-system broker, whatever the environment names.
LOCAL := env -u DATABASE_URL -u IPATE_BROKER_URL -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

$(CATALOGUE): $(CATALOGUE:.mo=.po) | .venv/installed
	@$(BIN)/python -m ipate_web.catalogues

install: .venv/installed $(CATALOGUE) ## install what the site needs into .venv and compile the translations

install-dev: .venv/installed-dev $(CATALOGUE)

demo: install ## run a whole study on real data, then start the site (DATA=digits|mnist|adult|diabetes, PORT=8000)
	@$(MANAGE) demo --data $(DATA) --port $(PORT)

up: install ## start site and worker for development (PORT=8000)
	@$(MANAGE) up --port $(PORT)

# With T=path only that folder, file or test, on SQLite and without lint.
ifdef T
test: install-dev
	@$(LOCAL) $(PYTEST) -q $(T)
else
test: lint ## run all checks and tests, on SQLite and, where they answer, PostgreSQL and Redis; T=path: only that path, on SQLite
	@PYTEST=$(PYTEST) tests/run
endif

test-fast: install-dev ## run the tests without browser, worker, demo and whatever is marked slow, on SQLite
	@$(LOCAL) $(PYTEST) -q -n auto --dist worksteal -m "not browser and not worker and not slow"

pictures: install-dev ## take the pictures of the documents anew (docs/screenshots)
	@$(LOCAL) $(PYTEST) -q tests/browser/pictures.py

reproduce: .venv/installed-dev ## recompute the papers' tables from IPATE_DATA_DIR (QUICK=1: in minutes, TABLES="ids": only these)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(TABLES) $(if $(QUICK),--quick)

lint: install-dev ## check style, types, import contracts, migrations, production settings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log
	@$(BIN)/mypy .
	@$(MANAGE) makemigrations --check --dry-run
	@IPATE_SITE_URL=https://ipate.example IPATE_SECRET_KEY=$$($(PYTHON) -c 'import secrets; print(secrets.token_urlsafe(50))') \
		$(MANAGE) check --deploy --fail-level WARNING

clean: ## delete everything under var/, the demo included
	rm -rf var
