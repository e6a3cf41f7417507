# One image for both programs. Where no registry can be reached, name another base with --build-arg BASE=…: any
# root with Python 3.11 or newer and its venv will do (tests/machines/standins.py makes one of the distribution's packages).
ARG BASE=docker.io/library/python:3.13.16-slim@sha256:bf44cdfcb76cd3b41e879bc058fc37ec5872002ccfde7fcb765e218cde0cd79c

FROM ${BASE} AS build
COPY pyproject.toml README.md LICENSE /source/
COPY command /source/command
COPY exporter /source/exporter
COPY remediator /source/remediator
COPY deploy /source/deploy
COPY docs/runbooks /source/docs/runbooks
COPY examples /source/examples
COPY grafana /source/grafana
COPY rules /source/rules
# pip is only needed to install, and is not taken along.
RUN python3 -m venv /opt/trainwarden \
    && /opt/trainwarden/bin/python -m pip install --no-cache-dir --no-compile --disable-pip-version-check /source \
    && /opt/trainwarden/bin/python -m pip uninstall --yes --quiet pip setuptools
# Byte code is compiled once, here: the account that runs the image cannot write it. Starting both programs also
# compiles the modules of Python's standard library, which the official image holds as source alone.
RUN export PYTHONPYCACHEPREFIX=/opt/trainwarden/pycache \
    && /opt/trainwarden/bin/python -m compileall -q /opt/trainwarden/lib \
    && /opt/trainwarden/bin/trainwarden-exporter --version \
    && /opt/trainwarden/bin/trainwarden-remediator --version

FROM ${BASE}
COPY --from=build /opt/trainwarden /opt/trainwarden
COPY examples/demo /opt/trainwarden/demo
# Volumes that are mounted here for the first time take over these owners: so what makes the secrets, the rules and
# the demo run needs neither root nor any capability.
RUN mkdir -p /demo /run/trainwarden/token /run/trainwarden/grafana /run/trainwarden/rules /var/lib/trainwarden \
    && chown 65534:65534 /demo /run/trainwarden/*
ENV PATH=/opt/trainwarden/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/opt/trainwarden/pycache \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/trainwarden
# Enough to check a configuration. To see other accounts' processes takes more: docker-compose.yml says what and why.
USER 65534:65534
CMD ["trainwarden-exporter", "--help"]
