# Every chore of the repository. `make demo` and `make test` need Python 3.11 or newer and make,
# nothing else: the first target that wants it creates .venv, with uv where uv is, else with pip.

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STUDIO := $(VENV)/.studio
DEMO   := .demo.sqlite
TASK   := Plan a trip to Italy with great food
# Tried in this order. `make test PYTHON=/usr/local/bin/python3.12` leaves no choice.
PYTHONS = $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python)

# What a caller's shell has exported must not leak another environment into ours, nor keep each of the
# many processes of the tests from storing what it has compiled.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: demo test studio-test hosts check deletion format formatted lint types imports docs notebooks compat \
        compat-lowest compat-newest bench bench-counts bench-routing bench-peers bench-research bench-registry \
        bench-usage proof clean help

demo: $(READY) ## Run the travel team offline, then print the thread of every agent
	@rm -f $(DEMO) $(DEMO)-wal $(DEMO)-shm
	@$(BIN)/echelons run travel "$(TASK)" --db $(DEMO) --thread demo </dev/null
	@echo
	@$(BIN)/echelons trace --db $(DEMO) --thread demo
	@echo
	@echo "Stored in $(DEMO). Look around: $(BIN)/echelons threads --db $(DEMO)"

test: $(READY) ## Run the tests on all cores (ARGS="-k delegation -x -n0" is passed on to pytest)
	@$(BIN)/pytest -m "not studio" -n auto --dist loadfile $(ARGS)

studio-test: $(STUDIO) ## Install the Studio server and run the tests against it
	@$(BIN)/pytest -m studio $(ARGS)

hosts: $(READY) ## Run trees inside agents of other frameworks and theirs inside ours, in an environment of its own
	@$(BIN)/python tests/hosts/run.py $(ARGS)

check: formatted lint types imports deletion docs notebooks ## Run everything but the tests

deletion: $(READY) ## Remove one feature after the other from a copy; import what remains and check its types
	@$(BIN)/python -m tests.deletion

format: $(READY) ## Rewrite the files as ruff formats them
	@$(BIN)/ruff format .

formatted: $(READY)
	@$(BIN)/ruff format --check .

lint: $(READY) ## Look for mistakes with ruff
	@$(BIN)/ruff check .

types: $(READY) ## Check types with mypy --strict and pyright
	@$(BIN)/mypy
	@$(BIN)/pyright

imports: $(READY) ## Check that imports point one way
	@$(BIN)/lint-imports --no-logo --no-cache  # its cache misses new modules

docs: $(READY) ## Run the examples in docstrings, the README and docs/
	@$(BIN)/pytest tests/docs $(ARGS)

notebooks: $(READY) ## Execute every notebook
	@$(BIN)/pytest --nbmake notebooks $(ARGS)

compat: compat-lowest compat-newest ## Run a sample of the tests with the lowest and with the newest versions allowed

compat-lowest compat-newest: compat-%: $(READY)
	@$(call compat_install,.$@,$(RESOLVE_$*))
	@.$@/bin/python -m pytest -n auto --dist loadfile $(COMPAT_TESTS) $(ARGS)

bench: $(READY) ## Count and time, beside LangGraph by hand (ARGS=--help lists what else it does)
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-counts: $(READY) ## Count only; end with an error if a count has risen above the stored one
	@$(BIN)/python benchmarks/run.py --only counts $(ARGS)

bench-peers: $(READY) ## Measure beside other frameworks, each in an environment of its own
	@$(BIN)/python benchmarks/peers/run.py $(ARGS)

# make proof PART=replies tries only what any model may reply; PART=kills only what a death does;
# PART=deletion removes one feature after the other, and runs the tests that remain.
PROOF_replies := tests/properties/test_requests_are_accepted.py tests/properties/test_next_turn_answers.py
PROOF_kills := tests/crash
PROOF_deletion := tests/test_deletion.py
PROOF_ := tests/crash tests/scenarios $$(grep -rl --include='test_*.py' 'from tests.proof' tests)

proof: $(READY) ## Prove what is promised with all trials, or a PART of it; the tests make a sample
	@test -n "$(PROOF_$(PART))" || { echo "make proof PART=replies, PART=kills, PART=deletion, or no PART" >&2; exit 2; }
	@ECHELONS_PROOF=whole $(BIN)/pytest $(PROOF_$(PART)) \
		-o timeout=7200 --durations=0 $(ARGS)

bench-routing: $(READY) ## Measure the routing against DATA=folder, and store the figures
	@test -n "$(DATA)" || { echo "make bench-routing DATA=folder (docs/routing.md says of what)" >&2; exit 2; }
	@$(BIN)/python benchmarks/route.py "$(DATA)" $(ARGS)

bench-research: $(READY) ## Measure the research team on DATA=folder with the questions in ASKED=file
	@test -n "$(DATA)" -a -n "$(ASKED)" || { echo "make bench-research DATA=folder ASKED=file (docs/cli.md says of what)" >&2; exit 2; }
	@$(BIN)/python -m benchmarks.research "$(DATA)" "$(ASKED)" $(ARGS)

bench-registry: $(READY) ## Measure the registry, its drawing and its view over 1,000 and 10,000 agents
	@$(BIN)/python -m benchmarks.registry

bench-usage: $(READY) ## Measure the sums of what 1,000 and 10,000 agents have used, and their views
	@$(BIN)/python -m benchmarks.usage

clean: ## Remove all that make and the tools have made (.venv, caches, builds, the demo)
	@rm -rf $(VENV) .compat-* .peers build dist *.egg-info $(DEMO) $(DEMO)-wal $(DEMO)-shm
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .langgraph_api
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# An environment whose Python no longer runs, or has no pip, is made anew; any other is kept.
$(READY): pyproject.toml
	@$(BIN)/python -c 'import pip' 2>/dev/null || { $(create); }
	@echo "Installing Echelons and its tools into $(VENV) (once; a minute or two) ..."
	@$(call install,-e '.[travel]' --group dev)
	@touch $@

$(STUDIO): $(READY)
	@echo "Installing the Studio server into $(VENV) (once) ..."
	@$(call install,-e '.[travel$(comma)studio]' --group dev)
	@touch $@

comma := ,

# What `make compat` runs: contract tests, bytes that are stored, and scenarios of every kind.
COMPAT_TESTS = $(wildcard tests/contracts) \
  $(addprefix tests/graphs/test_,delegation_graph.py inline_writes.py nested_graphs.py state_updates.py token_stream.py) \
  tests/nodes/tool_execution tests/checkpoints/test_conformance.py \
  $(addprefix tests/checkpoints/storage/test_,serde.py seals.py schema.py stored_names.py) \
  $(addprefix tests/scenarios/test_,as_tool.py continuing.py contracts.py delegate_many.py embedded.py foreign.py \
    savers.py stop.py stored_databases.py tool_reviews.py ways_in.py) \
  $(addprefix tests/echelons/cli/,commands test_board.py test_views.py) tests/echelons/models/test_openai_chat.py \
  tests/echelons/text tests/echelons/test_public.py
RESOLVE_lowest := lowest-direct
RESOLVE_newest := highest

# Only uv resolves to the lowest versions: where it is not installed, it gets an environment too.
# Each environment is made anew, for an installer leaves alone what is there and will do.
define compat_install
uv=$$(command -v uv) || { uv=.compat-uv/bin/uv; test -x $$uv || { \
  echo "Installing uv into .compat-uv (once) ..."; rm -rf .compat-uv; \
  $(BIN)/python -m venv .compat-uv && .compat-uv/bin/python -m pip install -qq uv; }; } || exit 1; \
echo "Installing the $(patsubst .compat-%,%,$(1)) versions allowed into $(1) ..."; \
rm -rf $(1) && $$uv venv --quiet --seed --python $(BIN)/python $(1) \
  && $$uv pip install --quiet --python $(1)/bin/python --resolution $(2) \
    -r pyproject.toml --extra travel --group test \
  && $$uv pip install --quiet --python $(1)/bin/python --no-deps -e . \
  && $$uv pip list --quiet --python $(1)/bin/python | grep -E '^(lang(graph|chain)|pydantic |typer )'
endef

# A shim for a Python that is not installed is on the PATH but does not run: ask each to work.
define create
rm -rf $(VENV); \
if command -v uv >/dev/null 2>&1; then uv venv --quiet --seed --python '$(or $(PYTHON),>=3.11)' $(VENV); exit; fi; \
for python in $(PYTHONS); do \
  if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
  then $$python -m venv $(VENV); exit; fi; \
done; \
echo "Echelons needs Python 3.11 or newer with its venv module, and none was found." >&2; \
echo "Tried: $(PYTHONS)." >&2; \
echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or uv, or name one:" >&2; \
echo "  make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
exit 1
endef

# The pip that comes with a Python may be too old for --group, hence the first step.
define install
if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python $(1); \
else $(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' \
  && $(BIN)/python -m pip install -qq $(1); fi
endef
