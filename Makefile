# `make help` lists the targets. Everything is installed into .venv; all local state is in var/.
PYTHON ?= python3
DATA ?= digits
PORT ?= 8000
BIN := .venv/bin
MANAGE := $(BIN)/python manage.py
PYTEST := $(BIN)/pytest
# Only files whose hashes are listed in requirements/ are installed. The lists are complete.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
RELEASE := .venv-release/bin
LOCK := $(RELEASE)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help install install-site install-dev demo up test test-all examples docs pictures reproduce lint lock sbom advisories release house clean
CATALOGUES := $(patsubst %.po,%.mo,$(wildcard locale/*/LC_MESSAGES/*.po))
# Run tests on SQLite and the file-system broker, even if the environment names other services.
LOCAL := env -u DATABASE_URL -u IPATE_BROKER_URL -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: requirements/torch.txt requirements/worker.txt requirements/site.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) $(^:%=-r %)
	touch $@

.venv/installed-dev: .venv/installed requirements/dev.txt requirements/encoders.txt
	$(PIP) -r requirements/dev.txt
	$(PIP) -r requirements/encoders.txt
	touch $@

.venv/installed-docs: .venv/installed requirements/docs.txt
	$(PIP) -r requirements/docs.txt
	touch $@

$(CATALOGUES): %.mo: %.po | .venv/installed
	@$(BIN)/python -m ipate_web.catalogues

install: .venv/installed $(CATALOGUES) ## install the site into .venv and compile the translations

install-site: ## install the site without PyTorch, for pages, beat and backups (workers need `make install`)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -r requirements/site.txt
	@$(BIN)/python -m ipate_web.catalogues

install-dev: .venv/installed-dev $(CATALOGUES)

demo: install docs ## start the site with a study on real data and run it (DATA=digits|mnist|adult|diabetes, PORT=8000, SITES=3)
	@$(MANAGE) demo --data $(DATA) --port $(PORT) $(if $(SITES),--sites $(SITES))

up: install ## start site and worker for development (PORT=8000)
	@$(MANAGE) up --port $(PORT)

# T=path runs only that folder, file or test, on SQLite and without lint.
ifdef T
test: install-dev
	@$(LOCAL) $(PYTEST) -q -p no:randomly --doctest-modules $(T)
else
test: checks ## run the checks, examples and tests that every change must pass (T=path: only that path, on SQLite)
	@PYTEST=$(PYTEST) tests/run
endif

test-all: checks ## run everything: `make test` and the exhaustive tests
	@PYTEST=$(PYTEST) tests/run all

.PHONY: checks
checks: install-dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint examples

examples: install-dev ## run the examples in docstrings
	@$(LOCAL) $(PYTEST) -q -p no:randomly -p no:cacheprovider --doctest-modules --no-header \
		$$(grep -rl --include='*.py' '>>>' accounting client common consent ipate_web learning training)

docs: .venv/installed-docs ## build the documentation, which the site serves at /docs/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: install-dev ## retake the screenshots of the documents (docs/screenshots)
	@$(LOCAL) $(PYTEST) -q docs/take_pictures.py

reproduce: .venv/installed-dev ## recompute the papers' tables from IPATE_DATA_DIR (QUICK=1: in minutes, TABLES="ids": only these)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(TABLES) $(if $(QUICK),--quick)

lint: install-dev ## check style, types, import contracts, plain English, migrations, production settings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log
	@$(BIN)/mypy .
	@$(BIN)/python docs/plain_english.py > .prose.log || { cat .prose.log; exit 1; }
	@rm -f .prose.log
	@$(MANAGE) makemigrations --check --dry-run
	@IPATE_SITE_URL=https://ipate.example IPATE_SECRET_KEY=$$($(PYTHON) -c 'import secrets; print(secrets.token_urlsafe(50))') \
		$(MANAGE) check --deploy --fail-level WARNING

house: ## count modules, templates and lines, and compare them with their limits (LIST=1: name the small modules)
	@$(PYTHON) -m benchmarks.house $(if $(LIST),--list)

# --- Supply chain

.venv-release/installed: requirements/release.txt
	test -x $(RELEASE)/python || $(PYTHON) -m venv .venv-release
	$(RELEASE)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

lock: .venv-release/installed ## resolve requirements/*.in into lists of exact versions with hashes (UPGRADE=1: newest allowed)
	cd requirements && for each in site worker docs dev release; do \
		../$(LOCK) $(if $(UPGRADE),--upgrade) --excludes excluded.txt --no-emit-package torch $$each.in -o $$each.txt; done
	cd requirements && ../$(LOCK) --no-deps encoders.in -o encoders.txt

sbom: .venv-release/installed install ## write a bill of materials with licences to var/sbom.json (CycloneDX)
	@mkdir -p var
	@$(RELEASE)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o var/sbom.json $(BIN)/python

advisories: .venv-release/installed ## check the locked packages for advisories on PyPI (needs the network)
	@for each in site worker docs dev; do \
		$(RELEASE)/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements/$$each.txt || exit 1; done

LEFT = tests/releases/$(VERSION).tar.xz
# A release consists of an archive of HEAD, a bill of materials, the digests of both, and an SSH signature of the digests.
release: sbom ## put a signed release of HEAD into var/release (VERSION=1.0.0 KEY=~/.ssh/id_ed25519)
	@test -n "$(VERSION)" -a -n "$(KEY)" || { echo "Set VERSION and KEY."; exit 1; }
	@test -z "$$(git status --porcelain --untracked-files=no)" || { echo "Commit first."; exit 1; }
	@git ls-files --error-unmatch $(LEFT) >/dev/null 2>&1 || { $(BIN)/python -m deploy.release $(LEFT) \
		&& echo "Commit $(LEFT), which tests of later versions restore, and run this again."; exit 1; }
	@rm -rf var/release && mkdir -p var/release
	@git archive --prefix=ipate-$(VERSION)/ -o var/release/ipate-$(VERSION).tar.gz HEAD
	@cp var/sbom.json var/release/ipate-$(VERSION).sbom.json
	@cd var/release && sha256sum ipate-* > SHA256SUMS && ssh-keygen -q -Y sign -n ipate-release -f $(KEY) SHA256SUMS
	@ls var/release

clean: ## delete everything under var/, including the demo, and the built documentation
	rm -rf var site
