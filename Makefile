# The two commands of the README, and what they stand on.
PYTHON ?= python3
BIN := .venv/bin
PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder
ALONE = $(shell grep -rlF mark.alone tests --include='test_*.py')

.PHONY: install demo lint check test nightly bench accuracy published docs pictures site dist clean

install: .venv/installed

.venv/installed: pyproject.toml
	@echo "Installing into .venv, once: 2 GB on disk, about 2 minutes; longer if gigabytes of CUDA come with PyTorch."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --editable '.[dev]'
	@# on all cores, where pip compiles on one, and not what nearly nobody imports; the rest is compiled when it
	@# is imported. Some files of packages are for other versions of Python.
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/transformers/' .venv/lib || true
	touch $@

demo: install
	@echo "Four strategies, predicted and then measured with real processes until 90% accuracy: about a minute, or three where others compute beside it (disturbed runs are measured again)."
	@echo "A step that is the mean of four gradients takes four times the learning rate of one: linear scaling."
	$(BIN)/lockstep validate quickstart --sweep --set 'stop={epochs: 20, target_accuracy: 0.9}' --out results/demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# a hundred processes start: what they import is compiled once
check test nightly: export PYTHONDONTWRITEBYTECODE =

# while you work: what starts no real processes, is not judged by the clock, and is not slow
check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not real and not alone and not slow and not nightly' $(PARALLEL)

test: lint
	@# one thread each, for as many processes as keep the cores busy; then those that need the machine for themselves
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not alone and not nightly' $(PARALLEL)
	$(BIN)/python -m pytest -m 'alone and not nightly' $(ALONE)

# what `make test` draws from, as a whole: long lists, and properties with more random examples
nightly: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m '(nightly or hypothesis) and not alone' \
	    --hypothesis-profile nightly -o faulthandler_timeout=1200 $(PARALLEL)
	$(BIN)/python -m pytest -m 'nightly and alone' $(ALONE)

bench: install
	$(BIN)/python benchmarks/goals.py
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/simulation_speed.py
	$(BIN)/python benchmarks/sweep_speed.py
	$(BIN)/python benchmarks/simgrid_speed.py
	$(BIN)/python benchmarks/transports.py
	$(BIN)/python benchmarks/executor_speed.py

accuracy: install
	$(BIN)/lockstep validate --suite --measured benchmarks/truth --out results/accuracy
	for folder in pipelines pipelines-loopback tensor crowded; do \
	    $(BIN)/lockstep validate --suite --measured benchmarks/truth/$$folder --out results/accuracy/$$folder; \
	done
	$(BIN)/python benchmarks/accuracy.py results/accuracy
	$(BIN)/python benchmarks/failures.py benchmarks/truth/failures

published: install
	$(BIN)/lockstep validate --published --out results/published
	$(BIN)/python docs/make/published.py results/published

docs: install
	$(BIN)/python docs/make/api.py
	$(BIN)/python docs/make/pipelines.py
	$(BIN)/python docs/make/systems.py
	$(BIN)/python docs/make/faults.py
	$(BIN)/python benchmarks/streaming_diloco.py

# the pictures of the pages, by the commands beside them: half an hour; WORDS=gantt draws those only
pictures: install
	$(BIN)/python docs/make/pictures.py $(WORDS)

# the pages of docs/ for a browser, in build/site
site: install
	$(BIN)/mkdocs build --strict

# what others install: dist/lockstep-….whl
dist: install
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf .venv results build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
