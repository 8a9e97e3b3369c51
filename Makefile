# make run    set up, build, fetch the demo model, open a terminal chat with it
# make test   everything that must pass: format, rooms, build with warnings as errors, tests, ASan + UBSan on the rooms at risk
# make build  build/release/bin/kvasir          make model  fetch the demo model, print its path last
# make bench  speed beside llama.cpp, one run   make fuzz   every fuzz target for FUZZ_SECONDS (default 60)
.PHONY: run build model test bench fuzz setup setup-test format check

JOBS ?= $(shell nproc)
# ccache then serves every checkout of the same sources.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
FUZZ_SECONDS ?= 60
# Rooms that read untrusted bytes or own state; the kernels are compared with ref in the dev build.
ASAN_TESTS := base_test json_test codec_test contract_test formats_test text_test kv_test cache_test sched_test sampling_test engine_test

run: build model
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
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target $(ASAN_TESTS)
	@ctest --preset asan -j $(JOBS) -LE slow -R '^($(subst $() ,|,$(ASAN_TESTS:_test=))):'

bench: build model
	@python3 bench/peers.py

fuzz: setup-test
	@tools/fuzz.sh $(FUZZ_SECONDS)

format:
	@git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.cpp' 'tests/*.h' | xargs clang-format -i
