# Every command people and CI run. `make` alone lists them.

.DEFAULT_GOAL := help
CARGO ?= cargo
# Warnings are errors here and nowhere else, so that work in progress compiles.
DENY_WARNINGS := -D warnings

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## Show a dozen requests through a server and two webhooks
	$(CARGO) run --release -- demo

.PHONY: test
test: tools ## Pass all tests: formatting, lints, documentation, then every test
	@tools/need.sh kubectl clients >/dev/null
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- $(DENY_WARNINGS)
	RUSTDOCFLAGS="$(DENY_WARNINGS)" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) test --workspace --locked

.PHONY: lint
lint: tools ## Check formatting and lints only
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- $(DENY_WARNINGS)

.PHONY: bench
bench: ## Measure: criterion benches of every crate
	$(CARGO) bench --workspace --locked

.PHONY: conformance
conformance: ## Compare with recorded truth only; VECTORS=DIR and SCENARIOS=DIR take those of another folder
	$(if $(VECTORS),LOCKGATE_REGISTRATION_VECTORS=$(abspath $(VECTORS))/registration.jsonl \
	LOCKGATE_REVIEW_RESPONSE_VECTORS=$(abspath $(VECTORS))/review-responses.jsonl) \
	$(CARGO) test --locked -p lockgate-api --test it -- vectors
	$(CARGO) test --locked -p lockgate-cel
	$(if $(SCENARIOS),LOCKGATE_SCENARIOS=$(abspath $(SCENARIOS))) \
	$(CARGO) test --locked -p lockgate-apiserver --test conformance

.PHONY: clients
clients: tools ## Run every client in every version at hand through everything
	@tools/need.sh kubectl clients >/dev/null
	LOCKGATE_CLIENTS=all $(CARGO) test --locked -p lockgate-apiserver --test clients

.PHONY: tools
tools:
	@tools/need.sh
