# Two commands do everything: `make run` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
PORT ?=
VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := .venv-docs

.PHONY: run test test-quick extras coverage check docs docs-serve bench bench-smoke lock release image clean

## Serve gateway.yaml with the demo model; PORT=9000 make run changes the port.
run: $(VENV)/.run-ready
	@$(if $(PORT),GATEWAY_SERVER__PORT=$(PORT)) exec $(BIN)/gateway serve --config gateway.yaml

## The whole test suite. GENERAL=1: without the fast paths, the tests that a fast path can change; COVERAGE=1: add to the
## coverage that `make coverage` reports.
test: $(VENV)/.test-ready
	@$(if $(GENERAL),GATEWAY_FAST_PATHS=0) $(BIN)/python -m pytest -n auto --dist loadfile \
		$(if $(COVERAGE),--cov --cov-append --cov-report=) $(if $(GENERAL),$(REACHES_FAST_PATHS:%=tests/%))

# The folders of tests that a fast path can change: the packages that have one (metatemplate, stream, backend) or use its
# result (wire, policy, calls), and whole calls over HTTP (edge, faults, reliability) and through each template
# (conformance, presets). The other tests are of tools, configuration, processes and providers: they get the same messages,
# prompts and bytes with and without fast paths, and make no decision of their own about them.
REACHES_FAST_PATHS := metatemplate stream backend wire policy calls edge faults reliability conformance presets

## For daily work, at most 90 seconds: the suite without what starts processes or servers, plays whole stories, or has the
## longest tables of cases.
SLOW := journeys providers faults bench reliability deploy docs edge cli workshop backend_embedded first_hour \
	metatemplate/chat_templates metatemplate/harness evaluate/harnesses metatemplate/answers/test_tool_calls.py \
	metatemplate/answers/test_published_answers.py policy/test_markers.py policy/test_role_boundaries.py
test-quick: $(VENV)/.test-ready
	@$(BIN)/python -m pytest -n auto --dist loadfile $(SLOW:%=--ignore=tests/%)

## Print the coverage of the runs with COVERAGE=1; fail below the limits.
coverage: $(VENV)/.test-ready
	@scripts/coverage

## Format, lint, strict types, floors.
check: $(VENV)/.test-ready
	@scripts/check

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' \
		|| { echo "the gateway needs Python 3.11 or newer; name one: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing what the demo needs into $(VENV) (once)" >&2
	@$(BIN)/python scripts/install-packages requirements.lock
	@touch $@

$(VENV)/.test-ready: requirements-dev.lock $(VENV)/.run-ready
	@echo "installing what the tests need into $(VENV) (once)" >&2
	@$(BIN)/python scripts/install-packages requirements-dev.lock
	@touch $@

## Install the optional packages too: LiteLLM, for targets with `speaks: litellm`.
extras: $(VENV)/.run-ready
	@$(BIN)/python scripts/install-packages requirements-all.lock

## Build the documentation site into site/. Fails on a warning, a broken link, or an API reference that is not up to date.
docs: $(DOCS_VENV)/.ready
	@$(DOCS_VENV)/bin/python scripts/api-reference --check
	@$(DOCS_VENV)/bin/zensical build --clean --strict
	@$(DOCS_VENV)/bin/python scripts/check-site site
## Serve the site; a change of a page is shown at once. PORT=9000 make docs-serve changes the port.
docs-serve: $(DOCS_VENV)/.ready
	@exec $(DOCS_VENV)/bin/zensical serve --dev-addr 127.0.0.1:$(or $(PORT),8001)

$(DOCS_VENV)/.ready: requirements-docs.lock
	@echo "installing what the documentation site needs into $(DOCS_VENV) (once)" >&2
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

## Benchmark the gateway and its peers (more than an hour); BENCH="--only nonstream" make bench measures one group.
bench: $(VENV)/.test-ready
	@$(BIN)/python -m bench $(BENCH)

## Check that the benchmark suite runs: a few seconds, the gateway only.
bench-smoke: $(VENV)/.test-ready
	@$(BIN)/python -m bench --smoke --out .bench/smoke.json

## Write the lock files anew (hashes, no index address). The smaller ones have the versions of the largest.
COMPILE := $(BIN)/uv pip compile -q --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
# Without the extra `engines`: transformers has 130 MB, and no server uses it.
EXTRAS := --extra litellm --extra otel --extra redis --extra redact --extra asgi
lock: $(VENV)/.test-ready
	@$(COMPILE) pyproject.toml $(EXTRAS) --group dev -o requirements-dev.lock
	@$(COMPILE) pyproject.toml $(EXTRAS) -c requirements-dev.lock -o requirements-all.lock
	@$(COMPILE) pyproject.toml -c requirements-dev.lock -o requirements.lock
	@$(COMPILE) --group docs -o requirements-docs.lock
	@$(COMPILE) --no-annotate -c requirements-dev.lock $(RAY)/requirements.in -o $(RAY)/requirements.lock
	@$(BIN)/uv pip compile -q --python-version 3.11 --no-annotate --no-header --no-emit-index-url --no-emit-package torch \
		$(HARNESSES)/requirements.txt -o $(HARNESSES)/versions.txt
RAY := tests/evaluate/running/environment
HARNESSES := tests/support/harnesses/environment

## Build the files of a release into dist/, prove them with pip, pipx and uv, and print what is left to a person.
release: $(VENV)/.test-ready
	@$(BIN)/python scripts/release

## Build the container image. BASE=IMAGE takes another base, LOCK=requirements.lock leaves the extras out, and
## WHEELS=wheels builds without a network, from that folder; BUILDER="podman build" takes another program.
BUILDER ?= docker build
IMAGE ?= meta-gateway:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
OFFLINE := --network=none --build-arg PIP_NO_INDEX=1 --build-arg GATEWAY=meta-gateway --build-arg PIP_FIND_LINKS
image:
	@$(BUILDER) -f deploy/Containerfile -t $(IMAGE) $(if $(BASE),--build-arg BASE=$(BASE)) \
		$(if $(LOCK),--build-arg LOCK=$(LOCK)) $(if $(WHEELS),$(OFFLINE)=$(WHEELS)) .

clean:
	@rm -rf $(VENV) $(DOCS_VENV) site .cache .coverage* .pytest_cache .mypy_cache .ruff_cache dist build wheels
