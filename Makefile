# Everything starts here, on a machine with Python 3.11, 3.12 or 3.13 and nothing else: `make help`.

# A path or a name; empty takes the first that tools/find_python.sh finds.
PYTHON ?=
EXPERIMENT ?= experiments/pong-ppo.yaml
ARGS ?=
SEED ?= 0
MINUTES ?= 10
RUNS ?= 24
KILLS ?= 50
# Of the slow and the learning tests: a fifth, another one with each commit.
PART ?= $(shell expr $$(git rev-list --count HEAD 2>/dev/null || echo 0) % 5)
JSON ?= build/accelerator.json

# cpu, gpu or tpu, for `make run`: each has a virtual environment of its own, so that none is a mixture.
DEVICE ?= cpu
ifeq ($(filter $(DEVICE),cpu gpu tpu),)
$(error DEVICE=$(DEVICE): choose cpu, gpu or tpu)
endif
ifneq ($(DEVICE),cpu)
ifneq ($(filter-out run clean,$(MAKECMDGOALS)),)
$(error DEVICE=$(DEVICE) goes with make run only)
endif
endif
DEVICE_SUFFIX := $(filter-out -cpu,-$(DEVICE))
RUN_LOCK := requirements/run$(DEVICE_SUFFIX).lock

VENV := .venv$(DEVICE_SUFFIX)
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Files side by side, a process for each of two cores. More of them would time out on each other.
PARALLEL := -n 2 --dist loadfile
# $(call ON_BOTH,options of pytest on TensorFlow,on JAX): JAX's tests run where TensorFlow's have failed, too.
ON_BOTH = trap 'exit 130' INT TERM; result=0; \
  SEEDBED_TEST_BACKEND=tensorflow $(PYTEST) $(PARALLEL) $(1) || result=$$?; \
  SEEDBED_TEST_BACKEND=jax $(PYTEST) $(PARALLEL) $(2) || result=$$?; \
  exit $$result
# Cases side by side, each worker with namespaces of its own: most of the time pods start.
E2E := PATH="$$PATH:$(CURDIR)/$(VENV)/kube" $(PYTEST) -n 2 --dist loadgroup --timeout 1500 --durations 10 tests/e2e
# $(call MAKE_VENV,folder)
MAKE_VENV = python=$$(tools/find_python.sh $(if $(PYTHON),'$(PYTHON)')) && \
  echo "$$python -m venv $(1)" && "$$python" -m venv $(1)
# Wheels only, and each with a known hash: nothing is built, nothing unpinned is fetched.
INSTALL_LOCKED := requirements/install.sh $(BIN)/python
INSTALL_PROJECT := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --config-settings editable_mode=compat -e .

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-slow test-learning test-rehearsal test-pythons e2e e2e-all e2e-set gke-doc storm sweep-torture images image-football football release kind-up lint lint-style lint-types lint-wire lint-docs lint-images format docs site \
  proto bench bench-accelerator setup hooks lock audit clean

help: ## Say what there is.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  PYTHON=... names another Python; EXPERIMENT=... and ARGS="--set a.b=c" go to make run.'

# --- Installing -----------------------------------------------------------------------------------

# A stamp is made when its lock file is installed, so that a second `make` starts at once.
INSTALLED_RUN := $(VENV)/.installed-run
INSTALLED_DEV := $(VENV)/.installed-dev

$(BIN)/python:
	@$(call MAKE_VENV,$(VENV))

$(INSTALLED_RUN): $(RUN_LOCK) pyproject.toml | $(BIN)/python
	@echo 'Installing $(RUN_LOCK) into $(VENV) (a minute; CUDA, several) ...'
	@$(INSTALL_LOCKED) $(RUN_LOCK)
	@$(INSTALL_PROJECT)
	@touch $@

# Everything that run.lock has is in dev.lock too.
$(INSTALLED_DEV): requirements/dev.lock requirements/kube-tools.lock pyproject.toml | $(BIN)/python
	@echo 'Installing requirements/dev.lock into $(VENV) (a minute or two) ...'
	@$(INSTALL_LOCKED) requirements/dev.lock
	@$(INSTALL_PROJECT)
	@tools/kube_tools.sh
	@touch $@ $(INSTALLED_RUN)

setup: $(INSTALLED_DEV) ## Install what developing needs into .venv.

football: $(INSTALLED_DEV) ## Build Google Research Football into .venv, on Debian 12 (10 minutes).
	tools/football.sh $(VENV)

hooks: $(INSTALLED_DEV) ## Run `make lint` before each commit.
	$(BIN)/pre-commit install

# --- Running --------------------------------------------------------------------------------------

run: $(INSTALLED_RUN) ## Train EXPERIMENT (Pong), or resume it; DEVICE=gpu or tpu.
	@VENV_PYTHON='$(BIN)/python' tools/generate_wire.sh
	@$(BIN)/seedbed train '$(EXPERIMENT)' $(ARGS)

bench: $(INSTALLED_DEV) ## Measure where the time goes.
	@$(BIN)/seedbed bench $(ARGS)

bench-accelerator: $(INSTALLED_DEV) ## Measure an accelerator's first hour into JSON (build/accelerator.json).
	@mkdir -p build
	@tools/accelerator_session.sh '$(JSON)' $(ARGS)

# --- Containers -----------------------------------------------------------------------------------

images: ## Build the images (:dev) with Docker.
	docker build -t localhost/seedbed-learner:dev -f Dockerfile.learner .
	docker build -t localhost/seedbed-actor:dev -f Dockerfile.actor .
	docker build -t localhost/seedbed-cost:dev -f Dockerfile.actor --target cost .

image-football: ## Build the actor's image with Google Research Football (10 minutes).
	docker build -t localhost/seedbed-actor-football:dev -f Dockerfile.actor --target football \
	  --build-arg BASE=python:3.11-slim-bookworm .

release: $(INSTALLED_DEV) ## Write a release of SOURCE (an address) for REGISTRY to dist/release.
	$(BIN)/python -m tools.release --out dist/release --source '$(SOURCE)' --registry '$(REGISTRY)' $(ARGS)

kind-up: images ## Make a cluster in Docker, with the images in it.
	kind create cluster --config k8s/kind.yaml
	kind load docker-image --name seedbed localhost/seedbed-learner:dev localhost/seedbed-actor:dev \
	  localhost/seedbed-cost:dev

# --- Checking -------------------------------------------------------------------------------------

test: $(INSTALLED_DEV) ## Run the tests, the numerical ones on both backends.
	$(call ON_BOTH,,-m 'backends and not learning and not slow')

test-slow: $(INSTALLED_DEV) ## Run what takes long: one of five parts (10 minutes), or PART=all.
	@echo 'slow and learning tests: part $(PART) of 0 to 4, by the number of commits; PART=all runs every part'
	export SEEDBED_TEST_PART=$(PART); $(call ON_BOTH,-m 'slow or learning',-m 'slow and backends or learning')

test-learning: $(INSTALLED_DEV) ## Learn small things, on both backends (10 minutes).
	$(call ON_BOTH,--dist load -m learning,--dist load -m learning)

test-rehearsal: $(INSTALLED_DEV) ## Rehearse the first hour on an accelerator: kill it, resume it, to its end (10 minutes).
	$(PYTEST) -v -m rehearsal $(ARGS)

test-pythons: $(INSTALLED_DEV) ## Try the wheel and the quick tests on Python 3.12 and 3.13 (8 minutes).
	tools/test_pythons.sh

e2e: $(INSTALLED_DEV) ## Run the chart on the cluster of KUBECONFIG, which has the images (:dev).
	$(E2E) -m 'e2e and not e2e_all and not e2e_set' $(ARGS)

e2e-all: $(INSTALLED_DEV) ## The same, and what takes longer: before a release.
	$(E2E) -m 'e2e and not e2e_set' $(ARGS)

e2e-set: $(INSTALLED_DEV) ## Kill parts (KILL) of a set of RUNS (4) under DOLLARS (0.012) on the cluster, by SEED.
	PATH="$$PATH:$(CURDIR)/$(VENV)/kube" $(PYTEST) --timeout 1800 tests/e2e/test_sets.py -m e2e_set $(ARGS)

gke-doc: $(INSTALLED_DEV) ## Run the lines of docs/gke.md on the cluster of KUBECONFIG, but for Google's.
	$(E2E)/test_gke_page.py -m e2e $(ARGS)

storm: $(INSTALLED_DEV) ## Attack services and kill runs for MINUTES (10) by SEED; parts add up.
	mkdir -p build/storm
	$(BIN)/python -m tests.storm --seed $(SEED) --minutes $(MINUTES) --out build/storm/$(SEED).json

sweep-torture: $(INSTALLED_DEV) ## Kill a set of RUNS (24) CartPoles KILLS (50) times by SEED, to its end.
	$(BIN)/python -m tests.sets.torture --runs $(RUNS) --kills $(KILLS) --seed $(SEED)

lint: lint-style lint-types lint-wire lint-docs lint-images ## Style, types, what is generated, images.

lint-style: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(INSTALLED_DEV)
	$(BIN)/mypy

lint-wire: $(INSTALLED_DEV)
	tools/generate_wire.sh --check

lint-docs: $(INSTALLED_DEV)
	tools/generate_docs.sh --check

lint-images: $(INSTALLED_DEV)
	$(BIN)/hadolint Dockerfile.*

# --- Writing --------------------------------------------------------------------------------------

format: $(INSTALLED_DEV) ## Format the code, and fix what ruff can fix.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(INSTALLED_DEV) ## Generate seedbed/v1 from proto/.
	tools/generate_wire.sh

docs: $(INSTALLED_DEV) ## Generate references, the chart's schema and dashboard.
	tools/generate_docs.sh

# The site has a virtual environment of its own.
.venv-docs/.installed: requirements/docs.lock
	@$(call MAKE_VENV,.venv-docs)
	@requirements/install.sh .venv-docs/bin/python requirements/docs.lock
	@touch $@

site: .venv-docs/.installed ## Build the pages as a searchable site into build/site.
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

lock: $(INSTALLED_DEV) ## Write requirements/*.lock from pyproject.toml (UPGRADE=1 for the newest).
	UPGRADE=$(UPGRADE) tools/lock.sh

audit: ## Look up known vulnerabilities of every lock, over the network.
	tools/audit.sh

clean: ## Remove .venv and caches; runs/ stays.
	rm -rf .venv .venv-gpu .venv-tpu .venv-docs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find seedbed services bench tools tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
