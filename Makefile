# gnnloom: `make demo` shows it all, `make test` tests it; everything is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin
SCALE ?= full

.PHONY: install demo test test-slow test-long test-browser lint typecheck fuzz soak kills changes flips sanitize docs wheel bench-ingest bench-partition \
	bench-algorithms bench-spmm bench-epoch bench-sampling bench-loader bench-links bench-propagate bench-modes bench-minibatch bench-startup \
	bench-plan bench-exclusion bench-exchange bench-evaluation bench-memory papers-shape mag-shape wheel-versions clean

install: .venv/warm

# pip compiles ten thousand modules to bytecode on one core; Python itself does so on all cores. Some modules of packages
# are for other versions of Python.
.venv/installed: pyproject.toml constraints.txt $(wildcard trainer/kernels/c/*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[kahypar,metis,report]'
	$(BIN)/python -m compileall -q -q -j 0 .venv/lib || true
	touch $@

# All kernels, on all cores. The demo compiles the few that it uses.
.venv/warm: .venv/installed
	$(BIN)/gnnloom doctor --warm
	touch $@

.venv/installed-for-tests: .venv/warm
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[kahypar,metis,report,interop,xarray,test,dev]'
	touch $@

.venv/installed-for-benchmarks: .venv/warm
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[kahypar,metis,report,bench]'
	touch $@

.venv/installed-for-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

demo: .venv/installed
	$(BIN)/gnnloom demo

# Three processes keep two cores busy, because tests wait for the ranks and commands that they start. The order of files
# is that of tests/conftest.py. ROOMS=trainer leaves out the tests of what does not import trainer.
# Python keeps the bytecode of the tests even where it is told not to: without it, every process takes twice as long to
# collect them.
# Tests write thousands of small files, which takes a quarter less processor time in memory: they use /dev/shm if it has
# 4 GiB free (IN_MEMORY= keeps them on disk). They need much less, as what a test wrote is deleted when it passes.
ROOMS ?=
IN_MEMORY = $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -ge 4194304 ] 2>/dev/null && echo /dev/shm)
IN_PARALLEL = PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
test: .venv/installed-for-tests
	$(IN_PARALLEL) --rooms '$(ROOMS)'

# Tests that take more than a second each: ranks, clusters, kills, whole journeys. CI runs them too.
test-slow: .venv/installed-for-tests
	$(IN_PARALLEL) --rooms '$(ROOMS)' -m 'slow and not long'

# Properties draw all their examples here, and a third of them in `make test`.
test-long: .venv/installed-for-tests
	EVERY_EXAMPLE=1 $(BIN)/python -m pytest -m 'slow or long or hypothesis'

lint: .venv/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror trainer/kernels/c/*.[ch] tests/trainer/kernels/*.c
	$(BIN)/python tests/support/import_contracts.py
	$(BIN)/python tests/support/tracked_files.py
	$(BIN)/python tests/support/english.py

# Reports and the manual in headless Chromium; where it is not installed, the tests are skipped. The manual is the one
# that `make docs` has built.
test-browser: .venv/installed-for-tests
	$(BIN)/python -m pytest -m browser tests/workflows/report/test_browser.py

# Type checkers do not see setuptools' editable hook, so an installed copy is checked; an older build would leave
# files in it that are gone. It needs no kernels in C, which are optional: without a compiler there are none.
typecheck: .venv/installed-for-tests
	rm -rf build
	CC=false $(BIN)/python -m pip install --quiet --no-deps --target build/typecheck .
	cd build/typecheck && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml -p gnnloom
	cd build/typecheck && MYPYPATH=.:../../tests ../../$(BIN)/mypy --config-file ../../pyproject.toml --exclude benchmarks ../../tests
	cd build/typecheck && MYPYPATH=.:../../tests/benchmarks ../../$(BIN)/mypy --config-file ../../pyproject.toml ../../tests/benchmarks

# Damaged inputs for every reader, FUZZ_SECONDS each.
FUZZ_SECONDS ?= 180
fuzz: .venv/installed-for-tests
	PYTHONPATH=tests $(BIN)/python tests/support/fuzzing.py --seconds $(FUZZ_SECONDS)

# Random pipelines with faults, kills and damage. Nothing else of gnnloom should run meanwhile: it counts leaks.
SOAK_MINUTES ?= 10
soak: .venv/installed-for-tests
	PYTHONPATH=tests $(BIN)/python tests/support/soak.py --minutes $(SOAK_MINUTES)

# Whole pipelines whose processes are killed at random moments, compared with undisturbed ones. Counts leaks, too.
KILLS ?= 200
kills: .venv/installed-for-tests
	PYTHONPATH=tests $(BIN)/python tests/support/kills.py --kills $(KILLS)

# Temporary files of stages that were killed are changed: the stages must make the right bytes or end with one error.
CHANGES ?= 300
changes: .venv/installed-for-tests
	PYTHONPATH=tests $(BIN)/python tests/support/work_changes.py --changes $(CHANGES)

# Stored files are damaged, and the commands that read them must give the right result or one error.
FLIPS ?= 1000
flips: .venv/installed-for-tests
	PYTHONPATH=tests $(BIN)/python tests/support/flips.py --flips $(FLIPS)
	PYTHONPATH=tests $(BIN)/python tests/support/streamed_flips.py --flips $(FLIPS)

# The kernels in C, with every read, write and undefined operation checked. -g1 has the lines that reports name; with -g,
# the compiler would spend most of an hour on where variables are.
SANITIZED := -std=c11 -O1 -g1 -ffp-contract=off -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZED_KERNELS := $(patsubst trainer/kernels/c/%.c,build/sanitized/%.o,$(wildcard trainer/kernels/c/*.c))
KERNEL_HEADERS := $(wildcard trainer/kernels/c/*.h)
.SECONDARY: $(SANITIZED_KERNELS)
build/sanitized/%.o: trainer/kernels/c/%.c $(KERNEL_HEADERS)
	mkdir -p $(@D)
	$(CC) $(SANITIZED) -fPIC -c -o $@ $<

build/sanitized/check_%: tests/trainer/kernels/check_%.c $(SANITIZED_KERNELS)
	$(CC) $(SANITIZED) -o $@ $^ -lm

sanitize:
	$(MAKE) --jobs $(shell nproc) build/sanitized/check_spmm build/sanitized/check_attention
	build/sanitized/check_spmm
	build/sanitized/check_attention

# The manual, in build/docs; a warning, a link that leads nowhere, or anything from a network is an error.
docs: .venv/installed-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python docs/generate/check_links.py build/docs

# Real graphs, where they are there.
DATA ?= ../shared/data

# The wheel, installed into a virtual environment of its own, as a user would have it. Files of an older build would
# end up in the wheel.
wheel:
	rm -rf build/wheel build/lib* build/temp.* build/bdist.*
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	build/wheel/venv/bin/python -m pip install --quiet --constraint constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/gnnloom check
	cd build/wheel && PYTHONPATH=../../tests venv/bin/python -m support.quick_start $(abspath $(DATA))
	rm -rf build/wheel/venv

# The same with each version of Python; elsewhere than with the first one, pip may fetch torch with CUDA.
VERSIONS ?= python3.11 python3.12 python3.13
wheel-versions:
	for version in $(VERSIONS); do $(MAKE) wheel PYTHON=$$version || exit 1; done

# Against pandas + SciPy, polars and DuckDB; SCALE=small takes a minute, full half an hour and 10 GB of disk.
bench-ingest: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_ingest.py --scale $(SCALE)

# On real graphs (in DATA, where they are there) and a lattice; SCALE=small takes a minute, full half an hour.
bench-partition: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_partition.py --scale $(SCALE) --data $(DATA)

# Every algorithm on 1, 2 and 4 ranks; SCALE=small takes a minute, full a quarter of an hour.
bench-algorithms: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_algorithms.py --scale $(SCALE) --data $(DATA)

# Against straightforward samplers, and PyTorch Geometric's if torch-sparse is installed; SCALE=small takes a minute.
bench-sampling: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_sampling.py --scale $(SCALE)
	$(BIN)/python tests/benchmarks/bench_samples.py --scale $(SCALE)

# Against PyG's NeighborLoader, if torch-sparse is installed; SCALE=small takes a minute, full half an hour and 30 GB of disk.
bench-loader: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_loader.py --scale $(SCALE)
	$(BIN)/python tests/benchmarks/bench_typed_loader.py --scale $(SCALE)

# Accuracy of every mode of training over seeds, and the time to reach it; SCALE=small takes a minute, full ten.
# Leaves a report that compares the modes in build/modes.
bench-modes: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_modes.py --scale $(SCALE)

# Rows that mini-batches send with partitions made for them, on real graphs in DATA; SCALE=small takes some minutes.
bench-minibatch: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_minibatch.py --scale $(SCALE) --data $(DATA)

# Against torch's CSR product (MKL), torch's spmm_reduce and SciPy, with the bandwidth of the same run.
bench-spmm: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_spmm.py --scale $(SCALE)

# Against the layers of PyG, with torch-sparse if it is installed; SCALE=small takes a minute, full an hour and 15 GB of memory.
bench-epoch: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_epoch.py --scale $(SCALE)

# Epochs of link training against PyG, on the whole graph and on sampled neighbors; SCALE=small takes a minute, full ten.
bench-links: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_links.py --scale $(SCALE)

# Powers of the adjacency times the features, from and to disk, and in memory; SCALE=small takes a minute. SCALE=full needs
# 60 GB of disk, and 20 GB of memory for the side in memory.
bench-propagate: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_propagate.py --scale $(SCALE)

# The planner's forecasts against measured epochs, in processor time; SCALE=small takes some minutes on two cores.
bench-plan: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_plan.py --scale $(SCALE)

# Epochs that exclude a tenth of the edges from their products, and epochs that do not; SCALE=small takes a minute.
bench-exclusion: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_exclusion.py --scale $(SCALE)

# Rows and partial sums that p2p sends with covers, and epochs with both exchanges, on real graphs in DATA; SCALE=small
# takes a minute, full a quarter of an hour.
bench-exchange: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_exchange.py --scale $(SCALE) --data $(DATA)

# Exact evaluation and prediction from disk; within a limit, give it a control group (--group).
bench-evaluation: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_evaluation.py --scale $(SCALE)

# train --memory in control groups of that size, against the best options chosen by hand; SCALE=small takes two minutes,
# full half an hour.
bench-memory: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_memory.py --scale $(SCALE)

# papers100M's shape from raw files to a trained model, in a control group of 8 GiB; SCALE=small (1/100) takes minutes and
# 2 GB of disk. SCALE=quarter needs 50 GB of disk, half 100 and full 200.
papers-shape: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/papers_shape.py --scale $(if $(filter file,$(origin SCALE)),small,$(SCALE))

# MAG240M's shape, from its files to a trained model with types, in a control group of 3 GiB; SCALE=small (1/500) takes
# minutes, SCALE=full (1/20) needs 45 GB of disk.
mag-shape: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/mag_shape.py --scale $(if $(filter file,$(origin SCALE)),small,$(SCALE))

# Processor and wall time of commands before they do anything; SCALE=small takes half a minute.
bench-startup: .venv/installed-for-benchmarks
	$(BIN)/python tests/benchmarks/bench_startup.py --scale $(SCALE)

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
