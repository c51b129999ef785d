# The tasks of this repository. `make` lists them.

KAFKA_PORT ?= 29092
KAFKA := 127.0.0.1:$(KAFKA_PORT)
FUZZ_SECONDS ?= 5

.PHONY: help test race lint fuzz demo conformance conformance-tools conformance-demo conformance-kafka conformance-replies conformance-franz conformance-control bench

help: ## list the tasks
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 30

test: ## run the tests
	go test ./...

race: ## run the tests with the race detector
	go test -race ./...

lint: ## gofmt, vet, staticcheck, and the architecture and lint tests
	@test -z "$$(gofmt -l .)" || { echo 'not formatted with gofmt:'; gofmt -l .; exit 1; }
	go vet ./...
	go vet -tags conformance ./...
	go tool staticcheck ./...
	go test .

fuzz: ## run every fuzz target for FUZZ_SECONDS
	.ci/fuzz $(FUZZ_SECONDS)

demo: ## count words exactly once while everything is being killed
	go run ./cmd/hanbeon demo

# The conformance runs need a JDK, and Maven for the first one.
conformance: conformance-tools conformance-franz conformance-kafka conformance-demo ## all that needs Apache Kafka or its tools

conformance-tools: ## Kafka's command-line tools against our broker
	go test -tags conformance -count=1 -timeout 20m ./conformance

conformance-kafka: ## our producer, our library and our broker's replies against Apache Kafka 4.3.1
	conformance/with-kafka.sh $(KAFKA_PORT) env HANBEON_KAFKA=$(KAFKA) \
		go test -tags conformance -count=1 -timeout 20m ./internal/producer/... ./internal/runtime/... ./streams/... ./conformance/replies/...

conformance-replies: ## the same requests to Apache Kafka 4.3.1 and to our broker, replies compared
	conformance/with-kafka.sh $(KAFKA_PORT) env HANBEON_KAFKA=$(KAFKA) \
		go test -tags conformance -count=1 -timeout 10m ./conformance/replies

conformance-franz: ## the test suite of franz-go's client against our broker
	conformance/franz.sh

conformance-demo: ## the demo on Apache Kafka 4.3.1
	conformance/with-kafka.sh $(KAFKA_PORT) go run ./cmd/hanbeon demo --brokers $(KAFKA)

conformance-control: ## the conformance tests against Apache Kafka itself: they must hold there too
	conformance/with-kafka.sh $(KAFKA_PORT) env HANBEON_CONTROL=$(KAFKA) \
		HANBEON_CONTROL_DATA=$(CURDIR)/.cache/kafka/node-$(KAFKA_PORT)/data \
		go test -tags conformance -count=1 -timeout 20m ./conformance

bench: ## our broker and word count side by side with Apache Kafka's
	go run ./conformance/bench
