# The two commands of the README, and what they stand on.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test bench accuracy docs clean

install: .venv/installed

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/lockstep validate quickstart --strategy synchronous --strategy asynchronous \
	    --strategy downpour --strategy all-reduce --out results/demo

# a hundred processes start: what they import is compiled once
test: export PYTHONDONTWRITEBYTECODE =
test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@# one thread each, for as many processes as cores; then those that need the machine for themselves
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not alone' --numprocesses auto --dist loadfile
	$(BIN)/python -m pytest -m alone

bench: install
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/simulation_speed.py
	$(BIN)/python benchmarks/sweep_speed.py
	$(BIN)/python benchmarks/simgrid_speed.py
	$(BIN)/python benchmarks/transports.py
	$(BIN)/python benchmarks/executor_speed.py

accuracy: install
	$(BIN)/lockstep validate --suite --measured benchmarks/truth --out results/accuracy
	$(BIN)/python benchmarks/accuracy.py results/accuracy

docs: install
	$(BIN)/python docs/make/api.py

clean:
	rm -rf .venv results *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
