# `make help` lists what can be made. Everything is installed into .venv, everything that runs keeps its state in var/.
PYTHON ?= python3
DATA ?= digits
PORT ?= 8000
BIN := .venv/bin
MANAGE := $(BIN)/python manage.py
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help demo up test lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

demo: .venv/installed ## the main job on real data, then the site (DATA=digits|mnist|adult|diabetes, PORT=8000)
	@$(MANAGE) demo --data $(DATA) --port $(PORT)

up: .venv/installed ## site and worker for development (PORT=8000)
	@$(MANAGE) up --port $(PORT)

test: lint ## every check and test; on SQLite, and again on PostgreSQL and Redis where they answer
	@PYTEST=$(PYTEST) tests/run

lint: .venv/installed-dev ## style, types, import contracts, migrations, production settings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log
	@$(BIN)/mypy .
	@$(MANAGE) makemigrations --check --dry-run
	@IPATE_SITE_URL=https://ipate.example IPATE_SECRET_KEY=$$($(PYTHON) -c 'import secrets; print(secrets.token_urlsafe(50))') \
		$(MANAGE) check --deploy --fail-level WARNING

clean: ## forget the demo and everything under var/
	rm -rf var
