# `make help` lists what there is. Nothing here is needed to use countoff: the two
# commands of the README are.
.DEFAULT_GOAL := help
SHELL := bash
LINT_VERSION := $(shell sed -n 's/^readonly lint_version=//p' .ci/run)
LINT := $(or $(COUNTOFF_CI_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/countoff-ci)/golangci-lint-$(LINT_VERSION)/golangci-lint

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

.PHONY: demo
demo: ## mail-sender on an embedded Redis and SMTP server: peers come, leave and are killed
	go run ./examples/mail-sender

.PHONY: build
build: ## bin/countoff and bin/mail-sender
	go build -o bin/ ./cmd/countoff ./examples/mail-sender

.PHONY: test
test: ## all tests with the race detector, on embedded servers
	.ci/race

.PHONY: ci
ci: ## what CI runs: tests, format, vet, tidy, lint, real Redis, cluster, demo
	.ci/run

.PHONY: lint
lint: $(LINT) ## golangci-lint, as pinned in .ci/run
	$(LINT) run ./...

$(LINT):
	mkdir -p $(@D)
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

.PHONY: fmt
fmt: ## gofmt everything
	gofmt -w .

.PHONY: cover
cover: ## coverage of all packages by all tests, and coverage.html
	go test -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -n 1
	go tool cover -html=coverage.out -o coverage.html

.PHONY: guards
guards: ## takes out each guard of the protocol and wants its tests to go red
	.ci/guards

.PHONY: soak
soak: ## 10,000 seeds of 60 s of every mix, the large explorations, and 10,000 fleets of whole peers (some 20 minutes)
	go test ./transition/simulation -run 'TestSeeds' -timeout 6h -v -seeds 10000
	go test ./transition/simulation -run 'TestExplore' -timeout 6h -v -large
	go test ./sources/progress/progresstest -run 'TestReference' -timeout 6h -v -progress.seeds 10000
	go test ./sources/progress/progresstest -run 'TestExplore$$' -timeout 6h -v -large
	go test ./framework -run TestPeersUnderRandomFaults -timeout 6h -mix.seeds 10000

.PHONY: bench
bench: ## all benchmarks; each prints its verdict beside its goal
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-peers
bench-peers: ## countoff beside its peers on a redis-server of its own, quick; see docs/performance.md
	go -C cmd/countoff-bench run . --quick

.PHONY: chaos
chaos: ## 100 faults on real peers and a real redis-server, checked from outside: some 2 minutes
	go build -o bin/countoff-chaos ./cmd/countoff-chaos
	bin/countoff-chaos --faults 100 --peers 12

.PHONY: chaos-kills
chaos-kills: ## 200 kills, each taken over within the published bound: some 2 minutes
	COUNTOFF_CHAOS=1 go test -count 1 -v -run TestTwoHundredKills -timeout 10m ./cmd/countoff-chaos/command

.PHONY: chaos-etcd
chaos-etcd: ## 100 faults on peers whose ledger is in etcd, which is killed, stopped and cut off: some 3 minutes
	go -C transition/etcdledger build -o ../../bin/countoff-chaos-etcd ./countoff-chaos
	bin/countoff-chaos-etcd --faults 100 --peers 12 --long 6s

.PHONY: chaos-long
chaos-long: ## the 1,000 faults of docs/reliability.md: some 20 minutes
	go build -o bin/countoff-chaos ./cmd/countoff-chaos
	bin/countoff-chaos --faults 1000 --peers 12 --report chaos.md
