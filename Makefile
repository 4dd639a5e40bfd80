# make run    limits real HTTP on :8080, in front of a demo upstream
# make test   everything: checks, tests, tests with the race detector
# make fuzz   each fuzz target for FUZZTIME
# make bench  the benchmarks, in memory and through Redis
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
FUZZTIME ?= 60s

.PHONY: run test check fuzz bench picture

run:
	@go run ./cmd/stint serve --demo

test: check
	@scripts/get redis-server nginx haproxy caddy
	@if command -v redis-server >/dev/null; then export STINT_REQUIRE_REDIS=1; fi; \
	  if (PATH=$$PATH:/usr/sbin; command -v nginx && command -v haproxy && command -v caddy) >/dev/null; then export STINT_REQUIRE_PROXIES=1; fi; \
	  go test ./... && go test -race -short ./...

check:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...

fuzz:
	@scripts/fuzz $(FUZZTIME)

bench:
	@scripts/get redis-server
	go test -run '^$$' -bench . -benchmem . ./redislimit ./rules ./httplimit ./server

picture:
	go run ./docs/picture > docs/algorithms.svg
