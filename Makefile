# make run    limits real HTTP on :8080, in front of a demo upstream
# make build  bin/stint, which knows the commit it is of
# make dist   what a release has, in dist/: archives, packages, checksums, the image and
#             the Helm chart: docs/install.md
# make deploy  writes the parts of deploy/ that are made
# make weigh  what weighs in the program: docs/install.md
# make test   checks and every test in its short form, with real servers; the last line
#             says what was skipped and why
# make lint   gofmt, actionlint, go vet and staticcheck over every module: part of make test
# make check  make lint and make vuln. Not in make test: what is published overnight is no
#             fault of a change
# make test-all  every test in its long form, and those of the short form with the race
#             detector
# make test-matrix   the store's tests against several versions of Redis and Valkey;
#                    MATRIX="valkey-8.0 -- -short" for one of them, in brief
# make cluster  an API server of Kubernetes takes the chart, by helm, and the rest of
#               deploy/; the first time it builds that server, etcd and helm for ten minutes
# make chaos  the proof of docs/reliability.md, at length; its tables go to
#             server/internal/chaos/measured.md
# make fleet  simulates leases on 2 to 1,000 instances: docs/leases.md
# make fuzz   each fuzz target for FUZZTIME; scripts/fuzz tells of more
# make attack  every test named TestAttack, those with a long form for ATTACKTIME and
#             the differential fuzz for ATTACKFUZZTIME, about half an hour in all; the last
#             line says what got through. The short forms are in make test
# make vuln   known vulnerabilities in what we use, by govulncheck; fails where nothing
#             was checked, unless STINT_VULN_OFFLINE=allow
# make apidiff  how the public API differs from that of the last release: scripts/apidiff
# make screenshots  the pictures of the dashboard, and of the page of a replay, in docs/, taken in Chromium
# make looks TO=DIR  a picture of every page of the dashboard, in both languages, light and dark, on a phone and a laptop
# make bench  Stint beside other limiters and beside floors: docs/benchmarks.md
# make bench-waiting  what callers that wait get and cost: docs/benchmarks-waiting.md
# make bench-rules  files with many rules: docs/benchmarks-rules.md
# make bench-replay  how fast access logs are replayed: docs/replay.md
# make bench-go  the benchmarks of each package
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
FUZZTIME ?= 60s
ATTACKTIME ?= 1m
ATTACKFUZZTIME ?= 10m
PROGRAMS = redis-server nginx haproxy caddy node python3 cc initdb
BROWSER = chromium-headless-shell fonts-wqy-zenhei npm
MONITORING = promtool amtool prometheus-alertmanager
PACKAGING = rpm systemd-analyze
# Tests fail, and are not skipped, for want of a program that is there for others.
REQUIRED = if command -v redis-server >/dev/null; then export STINT_REQUIRE_REDIS=1; fi; \
	  if (PATH=$$PATH:/usr/sbin; command -v nginx && command -v haproxy && command -v caddy && command -v node && command -v python3) >/dev/null; then export STINT_REQUIRE_PROXIES=1; fi; \
	  if (command -v chromium-headless-shell || command -v chromium) >/dev/null && [ -e internal/browser/testdata/node_modules/axe-core ]; then export STINT_REQUIRE_BROWSER=1; fi; \
	  if command -v node >/dev/null && [ -e examples/llm/testdata/node_modules/openai ] && [ -e internal/schematest/testdata/node_modules/yaml-language-server ]; then export STINT_REQUIRE_CLIENTS=1; fi; \
	  if (command -v promtool && command -v amtool && command -v prometheus-alertmanager) >/dev/null; then export STINT_REQUIRE_MONITORING=1; fi; \
	  if (PATH=$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' ':'); command -v initdb) >/dev/null; then export STINT_REQUIRE_POSTGRES=1; fi;

.PHONY: run build dist deploy weigh test test-all programs test-matrix cluster chaos fleet check lint fuzz attack vuln apidiff bench bench-waiting bench-rules bench-replay bench-go screenshots looks picture

# Not by go run, which reports the end by Ctrl-C as a failure. So does make if what it
# runs has ended before it has seen the Ctrl-C itself: hence the pause.
run:
	@go build -o bin/stint ./cmd/stint; trap 'sleep 0.2' INT; bin/stint serve --demo

build:
	go build -buildvcs=true -tags grpcnotrace -o bin/stint ./cmd/stint

dist:
	@scripts/dist

deploy:
	@GOWORK=off go -C tools/cluster run .

# As make dist builds it, but with symbols, which a stripped program lacks.
weigh:
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -tags grpcnotrace -o bin/weighed ./cmd/stint
	@GOWORK=off go -C tools/dist run ./weigh $(CURDIR)/bin/weighed

# The collector takes an eighth of the short form where memory is short, and there it is not.
test: export GOGC = 400
test: lint programs
	@$(REQUIRED) scripts/test short

test-all: programs
	@scripts/get $(PACKAGING)
	@$(REQUIRED) scripts/test long

programs:
	@scripts/get $(PROGRAMS) $(BROWSER) $(MONITORING)
	@scripts/axe
	@scripts/clients

test-matrix:
	@scripts/matrix $(MATRIX)

# By a tag of the build, so that lint and tests of the rest compile none of it.
cluster:
	cd tools/cluster/apiserver; export GOWORK=off; go vet -tags cluster . && go test -tags cluster -count=1 -timeout 40m .

check: lint vuln

# Over every module: those of the workspace, and those that are built by themselves.
lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	@$$(go -C tools tool -n actionlint) .github/workflows/*.yml
	@staticcheck=$$(go -C tools tool -n staticcheck); set -x; \
	  go vet work; $$staticcheck work; \
	  for module in $$(scripts/modules alone); do cd "$(CURDIR)/$$module"; go vet ./...; $$staticcheck ./...; done

chaos:
	@scripts/get redis-server
	STINT_REQUIRE_REDIS=1 STINT_FAULTS=1 go test -count=1 -timeout 30m -run 'Fault|Failover|Frozen|Moving|Lying|Network' ./redislimit
	STINT_REQUIRE_REDIS=1 STINT_CHAOS=$(CURDIR)/server/internal/chaos/measured.md go test -count=1 -timeout 30m -v ./server/internal/chaos | grep -v '^=== '

fleet:
	STINT_FLEET=$(CURDIR)/docs go test -count=1 -timeout 10m -v ./internal/fleetsim | grep -v '^=== '

fuzz:
	@scripts/fuzz $(FUZZTIME)

attack:
	@scripts/get $(PROGRAMS)
	@$(REQUIRED) scripts/attack $(ATTACKTIME) $(ATTACKFUZZTIME)

vuln:
	@scripts/vuln

apidiff:
	@scripts/apidiff

# A module of its own, so that the others never enter ours.
bench:
	@scripts/get redis-server
	cd bench && go run .

bench-waiting:
	@scripts/get redis-server
	cd bench && go run . -waiting -rounds 3

bench-rules:
	cd bench && go run . -rules

bench-replay:
	@scripts/get goaccess
	go test -run '^$$' -bench Replay -count 5 ./cmd/stint

bench-go:
	@scripts/get redis-server
	go test -run '^$$' -bench . -benchmem . ./redislimit/... ./server/rules ./httplimit ./grpclimit ./server ./server/internal/decide ./server/internal/watch

screenshots:
	@scripts/get chromium-headless-shell
	STINT_REQUIRE_BROWSER=1 STINT_SCREENSHOTS=$(CURDIR)/docs go test -count=1 -timeout 30m -run 'TestScreenshots|TestReplayPicture' ./internal/browser

looks:
	@scripts/get redis-server $(BROWSER)
	STINT_REQUIRE_BROWSER=1 STINT_PICTURES=$(abspath $(TO)) go test -count=1 -run 'TestPictures$$' ./internal/browser

picture:
	go run ./docs/picture > docs/algorithms.svg
