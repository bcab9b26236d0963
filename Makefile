# The commands of this project. `make help` lists them.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help

CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build target/release/poolkeeper
	cargo build --release --locked --bin poolkeeper

.PHONY: images
images: ## Make the container images, without a container engine
	hack/cluster/packages redis
	hack/images/build

.PHONY: demo
demo: ## Show poolkeeper at work on a real cluster (CLUSTER=current: on kubectl's current context)
	hack/demo/run $(CLUSTER)

.PHONY: down
down: ## End the demo's cluster
	hack/cluster/down

.PHONY: test
test: ## Run all tests
	hack/test/tier all

.PHONY: test-unit
test-unit: ## Run the tests that need nothing
	hack/test/tier unit

.PHONY: test-redis
test-redis: ## Run the tests against a real Redis
	hack/test/tier redis

.PHONY: test-api
test-api: ## Run the tests against a real control plane, the newest and the oldest supported
	hack/test/tier api

.PHONY: test-e2e
test-e2e: ## Run the tests on a real cluster with real workers
	hack/test/tier e2e

.PHONY: lint
lint: ## Check form, lints, docs, licences, scripts, chart and generated files
	hack/lint

.PHONY: generate
generate: ## Write what is generated from the code: the resource definitions
	cargo run --quiet --locked --bin poolkeeper -- crds --out crds
	mkdir -p charts/poolkeeper/files/crds
	cp crds/*.yaml charts/poolkeeper/files/crds/

.PHONY: bench
bench: ## Measure, and print the tables of docs/benchmarks.md
	hack/bench
