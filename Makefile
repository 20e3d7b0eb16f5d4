PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
STAMP := $(VENV)/.installed

.PHONY: demo test check format docs pictures clean

demo: $(RUNNABLE)
	$(BIN)/srpfl demo

test: $(STAMP)
	-$(BIN)/python tests/report/get_browser.py
	$(BIN)/pytest

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

# The pictures of README and docs, anew from the demo.
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
