# What one types. `make demo` and `make test` work on a fresh Debian 12 with rustup's Rust and a C compiler.

CARGO ?= cargo
# Model builds have a directory of their own, so that they and the plain ones do not evict each other.
LOOM = RUSTFLAGS="$(RUSTFLAGS) --cfg uruk_loom" CARGO_TARGET_DIR=target-loom $(CARGO)
# With the assertions that debug builds make after each transaction.
SHUTTLE = RUSTFLAGS="$(RUSTFLAGS) --cfg uruk_shuttle -Cdebug-assertions" CARGO_TARGET_DIR=target-shuttle $(CARGO)
# For AArch64, in an emulator.
AARCH64 = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" $(CARGO)
# In front of tests that are chosen by name: a name that no test has is an error.
CHOSEN = scripts/chosen-tests.sh env
# One file of shuttle-tests, or all of them.
TEST ?= *
# What `make test` runs of `examples`.
EXAMPLES = hello boxed_runtime contained_plugins custom_unit no_llvm generator images image_instances inkwell lazy tiers lowering query_engine plugin_host redefine tokio_host
# How long `make stress` hammers.
STRESS_SECONDS ?= 60
# How long `make stress-tsan` does.
STRESS_TSAN_SECONDS ?= 600
# How many random histories `make soak` tries, and how long it spends on each scenario of random schedules.
SOAK_HISTORIES ?= 100000
SOAK_SHUTTLE_SECONDS ?= 20
# How long `make fuzz` gives each target.
FUZZ_SECONDS ?= 60

# Where `make install` puts the command. DESTDIR comes before it, for those who make packages.
PREFIX ?= /usr/local
INSTALLED = $(DESTDIR)$(PREFIX)
BUILT = $(or $(CARGO_TARGET_DIR),target)/release/uruk

.DEFAULT_GOAL := help
.PHONY: help setup install demo test check package loom shuttle weaken aarch64 tsan stress stress-tsan soak fuzz bench postgres

help: ## Lists these targets.
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r target what; do printf '  make %-11s %s\n' "$$target" "$$what"; done

setup: ## Installs what is missing: LLVM 22, clang 22, a C++ compiler.
	@scripts/setup.sh

install: setup ## Installs the command below PREFIX, and a file with its names and lines for those who debug the engine.
	$(CARGO) build --release -p uruk --features cli --config 'profile.release.package.uruk.strip="none"'
	install -d "$(INSTALLED)/bin" "$(INSTALLED)/lib/uruk"
	objcopy --strip-all "$(BUILT)" "$(INSTALLED)/bin/uruk"
	objcopy --only-keep-debug "$(BUILT)" "$(INSTALLED)/lib/uruk/uruk.debug"

demo: setup ## Runs SQLite, compiled to LLVM IR, in the engine, and shows where the time went.
	@scripts/demo.sh

test: setup ## Runs all tests. Models and random schedules have builds of their own: `make loom`, `make shuttle`.
	$(CARGO) build --release -p uruk --features cli
	URUK_BIN="$(CURDIR)/target/release/uruk" $(CARGO) test --workspace --exclude loom-tests --exclude shuttle-tests --features uruk/cli
	for example in $(EXAMPLES); do $(CARGO) run --quiet --example $$example || exit 1; done
	$(CARGO) run --quiet -p uruk-kaleidoscope --example kaleidoscope

check: setup ## Format, lints and documentation, as CI has them.
	@scripts/setup.sh --lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --features uruk/cli --all-targets -- -D warnings
	$(LOOM) clippy -p uruk-recorder -p uruk-core -p uruk-dispatch -p uruk-instances -p loom-tests --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --no-deps --workspace --features uruk/cli

package: setup ## Packs each crate as for a registry, builds what was packed, and documents it as docs.rs does. Publishes nothing.
	$(CARGO) publish --dry-run --workspace --allow-dirty
	@scripts/docs-rs.sh

loom: ## Explores the interleavings of every protocol that more than one thread runs, and shows that each model can fail.
	$(LOOM) test --release -p loom-tests

weaken: ## Only leaves out one step of a protocol at a time; its model must notice.
	$(CHOSEN) $(LOOM) test --release -p loom-tests --no-fail-fast -- every_weakening_is_caught

shuttle: ## Runs random schedules of large scenarios, for URUK_SHUTTLE_SECONDS each; TEST names one file.
	$(SHUTTLE) test --release -p shuttle-tests --test '$(TEST)'

aarch64: setup ## Runs unit tests for AArch64, in an emulator, and code that is linked here in an executor there.
	@scripts/setup.sh --aarch64
	$(AARCH64) test --target aarch64-unknown-linux-gnu -p uruk-recorder -p uruk-core -p uruk-dispatch --lib
	# The emulator gives no shared memory back, and a longer answer to a question about sockets than the system.
	$(AARCH64) test --target aarch64-unknown-linux-gnu -p uruk-pipeline --no-default-features --features helpers --lib -- --skip memory::shared:: --skip remote::dial::tests::a_listener_that_takes_none_in_is_late
	$(AARCH64) build --target aarch64-unknown-linux-gnu -p uruk-executor
	$(CHOSEN) URUK_AARCH64_EXECUTOR="$(CURDIR)/target/aarch64-unknown-linux-gnu/debug/uruk-executor" \
	  $(CARGO) test -p uruk-pipeline --test link -- aarch64_executor::
	$(CHOSEN) URUK_AARCH64_EXECUTOR="$(CURDIR)/target/aarch64-unknown-linux-gnu/debug/uruk-executor" \
	  $(CARGO) test -p uruk --features cli --test executor -- in_an_emulator
	$(CHOSEN) URUK_AARCH64_EXECUTOR="$(CURDIR)/target/aarch64-unknown-linux-gnu/debug/uruk-executor" \
	  $(CARGO) test -p uruk --features cli --test executor_lazy -- there
	$(CARGO) build -p uruk --features cli
	$(CHOSEN) URUK_BIN="$(CURDIR)/target/debug/uruk" URUK_AARCH64_EXECUTOR="$(CURDIR)/target/aarch64-unknown-linux-gnu/debug/uruk-executor" \
	  $(CARGO) test -p uruk-tests --test aarch64_programs -- as_natively

tsan: ## Runs core, dispatch and the protocol's tests under ThreadSanitizer.
	@scripts/tsan.sh

stress: ## Runs the tests that hammer, for STRESS_SECONDS each.
	$(CHOSEN) URUK_STRESS_SECONDS=$(STRESS_SECONDS) $(CARGO) test --release --workspace -- --ignored stress

stress-tsan: ## Runs a hundred thousand units under ThreadSanitizer for ten minutes, or STRESS_TSAN_SECONDS.
	URUK_STRESS_SECONDS=$(STRESS_TSAN_SECONDS) scripts/tsan.sh --release -p protocol-tests --test stress -- --ignored

soak: ## Looks for rare defects for half an hour or more: random histories, random schedules, stress. For the end of a large change.
	$(CHOSEN) URUK_HISTORIES=$(SOAK_HISTORIES) $(CARGO) test --release -p uruk-core --lib -- \
	  protocol::tests::model protocol::tests::priorities protocol::tests::slices::whatever protocol::tests::dependences::forest
	URUK_DOUBLE_COMPILE=all $(CARGO) test --release -p uruk --test double_compile
	URUK_STAGED=all $(CARGO) test --release -p uruk --test staged
	$(CARGO) build --release -p uruk --features cli
	for place in executor helpers; do \
	  URUK_APART=$$place URUK_BIN="$(CURDIR)/target/release/uruk" $(CARGO) test --release -p uruk-tests \
	    --test programs_c --test programs_cxx --test programs_rust --test programs_libraries --test programs_thread_locals || exit 1; \
	done
	@scripts/setup.sh --corpus
	$(CHOSEN) URUK_BIN="$(CURDIR)/target/release/uruk" $(CARGO) test -p uruk-tests --test programs_of_debian -- --ignored
	$(CHOSEN) URUK_COMPILATIONS=10000 $(CARGO) test --release -p uruk --test helpers compilations_outlive
	$(CHOSEN) URUK_QUERIES=10000 $(CARGO) test --release -p uruk --test embed unload
	$(CHOSEN) LOOM_MAX_PREEMPTIONS=2 $(LOOM) test --release -p loom-tests --test models -- close::
	URUK_SHUTTLE_SECONDS=$(SOAK_SHUTTLE_SECONDS) $(MAKE) shuttle
	$(MAKE) stress
	$(MAKE) stress-tsan STRESS_TSAN_SECONDS=$(STRESS_SECONDS)

fuzz: setup ## Tries damaged and crafted objects, archives and images, FUZZ_SECONDS for each target. None of them ever runs.
	@scripts/setup.sh --fuzz
	scripts/fuzz.sh $(FUZZ_SECONDS)

bench: setup ## Measures.
	$(CARGO) bench --workspace --benches
	$(CARGO) build --release -p uruk --features cli
	scripts/bench-throws.py
	scripts/compare-lli.py

postgres: setup ## Builds PostgreSQL, and measures it with LLVM's ORC and with Uruk under it; runs its regression suite.
	scripts/postgres.py
