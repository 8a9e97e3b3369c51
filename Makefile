# make run    set up, build, fetch the demo model, serve it: HTTP APIs and a web chat on port 8080
# make chat   the same with a terminal chat
# make test   everything that must pass: format, rooms, warnings as errors, tests, ASan + UBSan, API clients, browser
# make test-tsan  the rooms with threads under ThreadSanitizer
# make build  build/release/bin/kvasir          make model  fetch the demo model, print its path last
# make bench  speed beside other engines, of KV codecs beside bf16, of HTTP beside the library, of a start   make fuzz   every target for FUZZ_SECONDS (default 60)
# make crowd  200 clients for CROWD_SECONDS (default 180)              make hostile HOSTILE_REQUESTS broken requests
.PHONY: run chat build model test test-tsan test-clients test-web bench fuzz crowd hostile setup setup-test format check

JOBS ?= $(shell nproc)
# ccache then serves every checkout of the same sources.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
FUZZ_SECONDS ?= 60
CROWD_SECONDS ?= 180
HOSTILE_REQUESTS ?= 1000000
PORT ?= 8080
# Rooms that read untrusted bytes or own state; the kernels are compared with ref in the dev build.
ASAN_TESTS := base_test json_test codec_test contract_test formats_test hub_test text_test kv_test cache_test fit_test sched_test \
  sampling_test engine_test server_test
# Rooms with threads of their own.
TSAN_TESTS := hub_test engine_test server_test

run: build model
	@build/release/bin/kvasir serve "$$(tools/fetch_model.sh | tail -n 1)" --port $(PORT)

chat: build model
	@build/release/bin/kvasir chat "$$(tools/fetch_model.sh | tail -n 1)"

setup:
	@tools/setup.sh

setup-test:
	@tools/setup.sh --test

build: setup
	@mkdir -p build && { cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }
	@cmake --build --preset release -j $(JOBS)

model: setup
	@mkdir -p build && tools/fetch_model.sh

check: setup-test
	@tools/check_format.sh
	@python3 tools/check_rooms.py src src/rooms.txt
	@python3 tests/rooms/check_rooms_test.py

test: check
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(JOBS) -LE slow
	@$(MAKE) --no-print-directory test-clients test-web
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target $(ASAN_TESTS)
	@ctest --preset asan -j $(JOBS) -LE slow -R '^($(subst $() ,|,$(ASAN_TESTS:_test=))):'

test-tsan: setup-test
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan -j $(JOBS) --target $(TSAN_TESTS)
	@ctest --preset tsan -j $(JOBS) -LE slow -R '^($(subst $() ,|,$(TSAN_TESTS:_test=))):'

# The real API clients, and the web chat in a browser, against the development build.
test-clients: model
	@KVASIR_BIN=build/dev/bin/kvasir tests/clients/run.sh

test-web: model
	@KVASIR_BIN=build/dev/bin/kvasir tests/with_server.sh tests/web/run.sh

bench: build model
	@python3 bench/peers.py
	@cmake --build --preset release -j $(JOBS) --target http_bench beside_bench attention_bench
	@build/release/bin/attention_bench
	@build/release/bin/http_bench "$$(tools/fetch_model.sh | tail -n 1)"
	@build/release/bin/beside_bench "$$(tools/fetch_model.sh | tail -n 1)"
	@bench/startup.py

crowd: build model
	@SERVE_FLAGS="--batch 32 --queue 256" tests/with_server.sh tests/load/crowd.py --streams 200 --seconds $(CROWD_SECONDS)

hostile: setup-test model
	@cmake --preset asan >/dev/null && cmake --build --preset asan -j $(JOBS) --target kvasir
	@KVASIR_BIN=build/asan/bin/kvasir SERVE_FLAGS="--batch 32 --queue 256 --request-timeout 2" \
	  tests/with_server.sh tests/load/hostile.py --requests $(HOSTILE_REQUESTS)

fuzz: setup-test
	@tools/fuzz.sh $(FUZZ_SECONDS)

format:
	@git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.cpp' 'tests/*.h' | xargs clang-format -i
