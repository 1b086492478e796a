# sbxrun: build, prove, measure. "make help" lists the targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Documentation generators of the command line library are not linked: they cost
# start-up time.
TAGS := urfave_cli_no_docs
BUILD := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)"
comma := ,
LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build demo lab lab-plants lab-docs test fuzz sbom lint conformance man bench clean help

build: ## bin/sbxrun, one static binary
	$(BUILD) -o bin/sbxrun ./cmd/sbxrun
	$(BUILD) -o bin/sbxrun-mcp ./cmd/sbxrun-mcp

demo: build ## the main job: a harmless program and some that misbehave, each with its verdict
	hack/demo bin/sbxrun

lab: build ## attack the sandbox at every level and with each layer alone
	bin/sbxrun lab --ablation

lab-plants: ## plant defects and see that the lab catches each; takes long
	$(subst $(TAGS),$(TAGS)$(comma)plants,$(BUILD)) -o bin/sbxrun-plants ./cmd/sbxrun
	bin/sbxrun-plants lab --plants

lab-docs: build ## the lab's table in the README, made anew (as root)
	hack/lab-docs bin/sbxrun

test: ## everything that proves it; installs what it needs (as root)
	hack/deps test
	hack/test

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME (30s)
	hack/fuzz $(FUZZTIME)

sbom: build ## bin/sbxrun.sbom, the modules that the binary was built of, with their hashes
	go mod verify
	go version -m bin/sbxrun >bin/sbxrun.sbom

lint: ## gofmt, go vet, golangci-lint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt on these"; exit 1; }
	go vet ./...
	GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	go run $(LINT) run ./...
	go test -count 1 -run 'TestPathsOfContainers|TestTheCheckOfPaths' ./rootfs # no path that hostile code controls by name
	cd hack/conformance && go vet . && go run $(LINT) run -c ../../.golangci.yml . # a module of its own

conformance: build ## runtime-tools' programs on sbxrun, runc and crun; containerd, podman, Docker on sbxrun (as root)
	hack/deps conformance
	cd hack/conformance && go test . && go run . -bin ../../bin/sbxrun
	hack/deps clients
	hack/clients/all bin/sbxrun

man: ## the manual pages in hack/man and spec/POLICY.md, made anew from the tables
	UPDATE=1 go test ./spec -run 'TestThePage|TestTheManPage'
	UPDATE=1 go test ./cmd/sbxrun -run TestTheManPageOf

bench: build ## start-up beside runc, crun and bwrap, and the cost of supervision
	hack/deps bench
	go run ./hack/bench -bin bin/sbxrun

clean: ## remove what was built
	rm -rf bin .cache

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 13
