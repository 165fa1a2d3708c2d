# `make demo` and `make test` set up what they need in .venv; nothing outside this folder is touched.
PYTHON ?= python3
BIN := .venv/bin
# The GPU extras are large; without a driver the demo shows a recorded run and needs none of them.
GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo yes)

.PHONY: demo test check lint clean

demo: .venv/demo
	$(BIN)/addrfrac profile resnet50 --batch 64 -o runs/demo
	@echo "open      runs/demo/report.html in a browser"

# Files are dealt out to two workers; on a GPU one after the other, because tests there time things.
test: .venv/test
	$(BIN)/python -m pytest $(if $(GPU),,-n 2 --dist loadfile)

check: lint test

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "addrfrac needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "install python3-venv first: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e '.$(if $(GPU),[models])'
	@touch $@

# torchrec asks for the CUDA build of FBGEMM, so without a GPU it is installed beside the CPU build, without its requirements.
.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e '.[models,test$(if $(GPU),$(comma)dlrm)]'
ifeq ($(GPU),)
	$(BIN)/python -m pip install --quiet 'fbgemm-gpu-cpu==1.9.*' tensordict 'torchmetrics==1.0.3' tqdm pyre-extensions iopath
	$(BIN)/python -m pip install --quiet --no-deps 'torchrec==1.9.*'
endif
	@touch $@ .venv/demo

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

comma := ,
