# Every command people and CI run. `make` alone lists them.

.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-16s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## Run a demo: a dozen requests through two sample webhooks
	$(CARGO) run --release -- demo

.PHONY: cluster
cluster: tools ## Run three servers on three etcd members until interrupted
	@tools/cluster.sh

.PHONY: faults
faults: tools ## Inject random faults of servers, etcd members and the network under load, ROUNDS times; LOCKGATE=FILE tests another binary
	LOCKGATE_ETCD=$$(tools/need.sh etcd) LOCKGATE_FAKETIME=$$(tools/need.sh faketime) LOCKGATE_FAULT_ROUNDS=$(or $(ROUNDS),100) $(if $(LOCKGATE),LOCKGATE_PROGRAM=$(abspath $(LOCKGATE))) \
	$(CARGO) test --locked -p lockgate-cli --test it -- on_etcd --nocapture

.PHONY: check
check: ## Run formatting, lints and all tests without network and clients
	@tools/test.sh check

.PHONY: test
test: tools ## Run everything: formatting, lints, documentation, all tests, packages, dependencies
	@tools/test.sh all

.PHONY: lint
lint: tools ## Check formatting and lints only
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: bench
bench: ## Run the criterion benches of every crate
	$(CARGO) bench --workspace --locked

.PHONY: conformance
conformance: ## Run the recordings only; VECTORS=DIR and SCENARIOS=DIR run other recordings of the same format
	$(if $(VECTORS),LOCKGATE_REGISTRATION_VECTORS=$(abspath $(VECTORS))/registration.jsonl \
	LOCKGATE_REVIEW_RESPONSE_VECTORS=$(abspath $(VECTORS))/review-responses.jsonl) \
	$(CARGO) test --locked -p lockgate-api --test it -- vectors
	$(CARGO) test --locked -p lockgate-cel
	$(if $(SCENARIOS),LOCKGATE_SCENARIOS=$(abspath $(SCENARIOS))) \
	$(CARGO) test --locked -p lockgate-apiserver --test conformance

.PHONY: conformance-go
conformance-go: tools ## Run controller-runtime's envtest with Lockgate; REAL=DIR also with kube-apiserver and etcd
	REAL=$(if $(REAL),$(abspath $(REAL))) conformance/go/run.sh envtest

.PHONY: envtest-release
envtest-release: tools ## Build the archive and index for setup-envtest into OUT; the archive will be at BASE_URL
	tools/envtest-release.sh "$(or $(OUT),target/envtest-release)" "$(or $(BASE_URL),http://localhost)"

.PHONY: dist
dist: tools ## Build the release artifacts into OUT: archives, images, wheels, npm packages; BASE_URL is their download location
	tools/dist.sh "$(or $(OUT),target/dist)" "$(or $(BASE_URL),http://localhost)"

.PHONY: dist-test
dist-test: ## Test the artifacts in OUT: archive, pip, npm, Go, image, Action
	tests/install/run.sh "$(or $(OUT),target/dist)"

.PHONY: clients
clients: tools ## Run the tests of every installed client version
	@tools/need.sh clients >/dev/null
	PATH="$$(tools/need.sh kubectl):$$PATH" LOCKGATE_CLIENTS=all $(CARGO) test --locked -p lockgate-apiserver --test clients

.PHONY: tools
tools:
	@tools/need.sh
