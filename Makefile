# Every command that a person needs; `make` lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
# Where Go is when nobody put it on PATH.
export PATH := $(PATH):/usr/local/go/bin
.DEFAULT_GOAL := help

INPUT    ?= .
ONLY     ?=
JSON     ?=
FUZZTIME ?= 10s
SOAKTIME ?= 1800
SOAK     ?=
QUICK    ?=

stack       := go run ./tools/stack
staticcheck := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
packages     = $$(go list -m -f '{{.Dir}}/...')
generated   := schemas/json schemas/CATALOG.md
# A checkout that git refuses to read, as one of another user's, must not stop a build.
vcs          = $$(git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
say          = printf '\033[1m%s\033[0m\n'
ifneq ($(shell test -t 2 && echo yes),yes)
say          = printf '%s\n'
endif

.PHONY: help setup build demo up test test-short check generate bench fuzz soak clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Show the whole mesh at work on a code base (INPUT=dir, by default this one)
	@$(stack) -for demo
	@$(MAKE) build
	@./bin/weft demo --input '$(INPUT)'

up: ## Run a mesh in the foreground, until Ctrl-C
	@$(stack) -for demo
	@$(MAKE) build
	@./bin/weft up

setup: ## Get what is missing on this machine: packages, containerd, runc, OpenBao, templates
	@$(stack) -for all

build: ## Build the programs into bin, static
	@$(say) 'Building bin/weft, bin/weftd and bin/weft-init' >&2
	@CGO_ENABLED=0 go build -p 2 -trimpath -buildvcs=$(vcs) -ldflags '-s -w' -o bin/ ./services/cmd/...

# End-to-end tests have the machine to themselves. What fails is run once more, alone, and named if it passes then.
test: ## Run all tests on the real components with the race detector (WEFT_TEST_REQUIRE=1: skip none)
	@$(stack) -for test
	@all=$$(go list $(packages)); status=0; \
	rest=$$(grep -v /services/e2e <<<"$$all"); e2e=$$(grep /services/e2e <<<"$$all" || true); \
	go run ./tools/testrun -- -race -p 2 -timeout 40m $$rest || status=$$?; \
	[ -z "$$e2e" ] || go run ./tools/testrun -- -race -p 1 -timeout 40m $$e2e || status=$$?; \
	exit $$status

test-short: ## Run the quick tests, without what takes root, time or other programs
	@go test -short -p 2 $(packages)

check: ## Formatting, vet, staticcheck, generated files
	@$(say) 'gofmt' && files=$$(gofmt -l $$(git ls-files -- '*.go')) && { [ -z "$$files" ] || { echo "run gofmt -w on:" $$files; exit 1; }; }
	@$(say) 'go vet' && go vet $(packages)
	@$(say) 'staticcheck' && $(staticcheck) $(packages)
	@$(say) 'generated files' && $(MAKE) generate && { git diff --exit-code --stat -- $(generated) && \
	  [ -z "$$(git ls-files --others --exclude-standard -- $(generated))" ] || { echo 'they changed: commit what `make generate` makes'; exit 1; }; }

generate: ## Make JSON Schema and the catalogue from the wire structs
	@go run ./tools/schemagen

bench: ## Measure (ONLY=name,… for some; QUICK=1 for fewer rounds; JSON=1 for one object a line)
	@$(stack) -for bench >&2
	@$(MAKE) build
	@ONLY='$(ONLY)' JSON='$(JSON)' QUICK='$(QUICK)' go run ./tools/bench

fuzz: ## Fuzz every target for a short while (FUZZTIME=10s)
	@go test -list '^Fuzz' $(packages) | awk '/^Fuzz/ { target[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, target[i]; n = 0 }' | \
	while read -r package target; do \
	  $(say) "$$target in $$package"; \
	  go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$package" </dev/null; \
	done

soak: ## Run the end-to-end tests, long ones too, again and again (SOAKTIME=1800 seconds); SOAK=10000: so many sandboxes instead
	@$(stack) -for test
	@if [ -n '$(SOAK)' ]; then mkdir -p dist; \
	  WEFT_SOAK_SANDBOXES='$(SOAK)' WEFT_SOAK_RESULT='$(CURDIR)/dist/soak.json' \
	    go test -count=1 -timeout 24h -v -run '^TestSoak$$' ./services/e2e; exit; fi; \
	export WEFT_SOAK=1; end=$$(( SECONDS + $(SOAKTIME) )); round=0; \
	while [ $$SECONDS -lt $$end ]; do \
	  round=$$(( round + 1 )); $(say) "round $$round, $$(( end - SECONDS )) s left"; \
	  go test -race -count=1 -p 1 -timeout 40m ./services/e2e/...; \
	done

clean: ## Remove what was built here; what was provisioned stays in ~/.cache/weft
	@rm -rf bin dist
