"""Every mistake of remediator.yml and of the exporter.yml that it names, found at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config import announcements_folder, with_announced
from trainwarden_exporter.config_file.examination import Examined, examine
from trainwarden_exporter.config_file.loader import problem_at
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.processes.announcements import read_announcements
from trainwarden_exporter.runtime.similar_names import similar
from trainwarden_remediator.config.schema import PLAYBOOKS, Config, Setup, wrong_references

_LISTS_OF_WORKERS = 4
"""Parts of the location of a worker: runs, index, workers, index."""


def find_mistakes(path: Path) -> tuple[Problem, ...]:
    """Returns the problems of the remediator.yml at `path`, and of the exporter.yml that it names.

    A reference from one to the other is checked also where other keys are wrong.
    """
    try:
        own = examine(path, Config)
    except ConfigError as error:
        return error.problems
    if own.value is None or not own.knows("exporter", "config"):
        return own.problems
    try:
        observed = examine(own.value.exporter.config, ExporterConfig)
    except ConfigError as error:
        return (*own.problems, *(_with_reason(one, path) for one in error.problems))
    found = [*map(_with_similar_playbook, own.problems), *_references(path, own, observed)]
    return (*sorted(found, key=lambda one: one.line or 0), *observed.problems)


def _with_reason(problem: Problem, path: Path) -> Problem:
    """Says of an exporter.yml that cannot be read why it is looked for."""
    if problem.line is not None or problem.path.exists():
        return problem
    why = (
        f"{path.name} names it as `exporter: config:` (default exporter.yml), as its targets are"
        " workers of it; `trainwarden up --config` starts without it, for runs of `trainwarden run`"
    )
    return replace(problem, message=f"{problem.message}: {why}")


def _with_similar_playbook(problem: Problem) -> Problem:
    """Names the shipped playbook that the name of one without a condition resembles."""
    match problem.where.split("."):
        case ["playbooks", name, "condition"] if meant := similar(name, PLAYBOOKS):
            return replace(problem, message=f"{problem.message} (did you mean {meant}?)")
    return problem


def _references(
    path: Path, own: Examined[Config], observed: Examined[ExporterConfig]
) -> Iterator[Problem]:
    if own.value is None or observed.value is None:
        return
    if any(one[0] == "runs" and len(one) <= _LISTS_OF_WORKERS for one in observed.mended):
        return  # some of its workers are not known
    announced = read_announcements(announcements_folder(observed.value), time.time())
    exporter_config, _ = with_announced(observed.value, announced)
    for text, place in wrong_references(Setup(own.value, exporter_config=exporter_config)):
        root, *index = place[:2]
        if root == "targets":
            known = all(own.knows(root, *index, key) for key in ("run", "worker"))
        else:
            known = not own.problems and not observed.problems
        if known:
            yield problem_at(path, text, *place)
