PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUNNABLE := $(VENV)/.runnable
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test test-all faults run-faults deploy-faults check format docs pictures clean

demo: $(RUNNABLE)
	$(BIN)/srpfl demo

test: $(STAMP)
	-$(BIN)/python tests/report/get_browser.py
	$(PYTEST) -m 'not slow and not faults'

# The rest: long studies, real processes, and each kind of fault several times over.
test-all: test
	$(PYTEST) -m 'slow or faults' --trials 3

# All faults of runs and of deployments; many minutes, and nothing else should run beside it.
faults: run-faults deploy-faults

# Every kind of fault twenty times, over all engines, and all properties on cases that are new each
# time.
run-faults: $(STAMP)
	$(PYTEST) -m 'faults or hypothesis' --trials 20 --hypothesis-profile explore

# Kills, lost answers and hostile nodes, most of them on real processes, about twenty minutes; the
# table goes to docs/reliability.md.
deploy-faults: $(STAMP)
	$(BIN)/python tests/flower/deploy_faults.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Nothing is fetched but the builder itself; a warning, such as a broken link, is an error.
docs: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -q docs site
	@echo site/index.html

# The pictures of README and docs, from the demo.
pictures: demo
	PYTHONPATH=tests/report $(BIN)/python docs/pictures.py runs/demo
	PYTHONPATH=tests/report $(BIN)/python docs/pictures.py results/fig3/cifar10 cifar10-report 0.7

# A stamp is written last, so an install that was interrupted is done again. The demo needs less
# than the tests, and a newcomer should not wait for the rest.
$(RUNNABLE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $(RUNNABLE)

$(STAMP): $(RUNNABLE)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,flower]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
