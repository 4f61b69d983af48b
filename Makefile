# Everything that people and CI call. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
UV := $(shell command -v uv 2>/dev/null || echo $(HOME)/.local/bin/uv)
RUN := .venv/bin
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.PHONY: help setup setup-vllm demo demo-vllm test-vllm gpu-check check test test-kube kube-tools test-slow cluster-up cluster-down e2e images bench verify generate fmt clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready ## install everything into .venv, from the lock file

.venv/.ready: pyproject.toml uv.lock $(wildcard deploy/*/install.sh)
	@deploy/prometheus/install.sh
	@deploy/bubblewrap/install.sh
	@deploy/chromium/install.sh
	@command -v $(UV) >/dev/null || python3 -m pip install --quiet --user --root-user-action=ignore uv
	@PATH="$$HOME/.local/bin:$$PATH" uv sync --locked --all-extras --group dev
	@touch $@

setup-vllm: setup ## vLLM's environment for a machine without a GPU, once, in the user's cache (6 GB)
	@deploy/vllm/install.sh

test-vllm: setup ## the engines' contract on vLLM, and its own tests
	@python=$$(deploy/vllm/install.sh) && PYTHONPATH=.:operator $$python -m pytest tests/contract/engines -k vllm -W default --timeout 600 $(ARGS)

demo-vllm: setup setup-vllm ## the demonstration with two vLLM actors
	@$(RUN)/python -m ebbtide.demo --engine vllm --actors 2 --out runs/demo-vllm $(ARGS)

gpu-check: setup ## what of the platform this machine shows, in ten minutes and one table
	@$(RUN)/python -m benchmarks.gpu_check

demo: setup ## train a small model through all the services; ends with runs/demo/report.html
	@$(RUN)/python -m ebbtide.demo $(ARGS)

check: setup ## format, lint, types, import rules
	@$(RUN)/ruff format --check .
	@$(RUN)/ruff check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports

test: setup kube-tools ## every suite that fits in CI
	@$(RUN)/python -m pytest $(ARGS)

test-kube: setup kube-tools ## the part of it that runs against a real API server
	@$(RUN)/python -m pytest -m 'kube and not slow' $(ARGS)

kube-tools: ## build kube-apiserver, etcd, kubectl and helm once, into the user's cache
	@deploy/kube-tools/build.sh
	@deploy/kube-tools/helm/build.sh

images: setup ## build the images that the local cluster runs, with buildah
	@deploy/local-cluster/images.sh $(ARGS)

cluster-up: setup ## a Kubernetes of one node on this machine (as root), with the images
	@deploy/local-cluster/up.sh

cluster-down: ## end it, and remove all that it left
	@deploy/local-cluster/down.sh

e2e: cluster-up kube-tools ## install the chart there and run jobs in real pods
	@$(RUN)/python -m pytest tests/cluster -m cluster -p no:randomly --timeout 1200 $(ARGS)

test-slow: setup ## the long forms: 100 kills, the whole API fuzz
	@$(RUN)/python -m pytest -m slow --timeout 3600 $(ARGS)

bench: setup ## one benchmark: make bench NAME=grpo_parity
	@test -n "$(NAME)" || { $(RUN)/python -m benchmarks --list; exit 2; }
	@$(RUN)/python -m benchmarks $(NAME)

generate: setup ## write the generated files anew: schema, OpenAPI, reference pages
	@$(RUN)/python -m ebbtide.generate
	@$(RUN)/python -m services.gateway --openapi docs/api/openapi.json

verify: generate ## fail if a generated file is not what the code says
	@git diff --exit-code -- docs ebbtide services operator deploy

fmt: setup ## format and mend what ruff can
	@$(RUN)/ruff check --fix-only --quiet . ; $(RUN)/ruff format .

clean: ## remove what runs leave behind (not the environment)
	@rm -rf runs .ebbtide .mypy_cache .ruff_cache .hypothesis .import_linter_cache
