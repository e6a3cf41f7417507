"""Everything that `check` finds: problems that must be mended, notes, and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.exceptions import CollectError, Problem
from trainwarden_exporter.gpu.holders import program_name
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.yamlfile import problem_at
from trainwarden_remediator.config import Setup
from trainwarden_remediator.crosscheck.delivery import Delivery
from trainwarden_remediator.crosscheck.plan import Step, plan
from trainwarden_remediator.crosscheck.rulefiles import AlertRule
from trainwarden_remediator.ending import protected
from trainwarden_remediator.means.protection import refuse_protected


@dataclass(frozen=True, slots=True)
class Found:
    """What a check has come to; with any of the `problems` the configuration will not do."""

    problems: Sequence[Problem]
    notes: Sequence[str]
    steps: Sequence[Step]


def cross_check(
    path: Path, setup: Setup, rules: Sequence[AlertRule], alertmanager: Path | None, *, port: int
) -> Found:
    """Hold the configuration at `path` against rules and an alertmanager.yml.

    `port` is where the remediator listens. Raises ConfigError where a file cannot be read.
    """
    steps = plan(rules, setup)
    problems = [*_protected(path, setup), *_unknown_playbooks(rules, setup)]
    notes = [*_unreached_rungs(path, steps)]
    if rules:
        problems += _unreached_targets(path, setup, steps)
        notes += _unnamed_playbooks(path, rules, setup)
    notes += protected_now(path, setup)
    if alertmanager is not None:
        delivery = Delivery(alertmanager, setup.config, port=port)
        problems += delivery.problems(rules)
        notes += delivery.notes(rules)
    return Found(problems, notes, steps)


def _unknown_playbooks(rules: Sequence[AlertRule], setup: Setup) -> Iterator[Problem]:
    for rule in rules:
        name = rule.remediation
        if name and setup.config.playbook(name) is None:
            where = f"alert {rule.name}: labels.remediation"
            line = rule.lines["remediation"]
            yield Problem(rule.path, line, where, f"there is no playbook {name}")


def _protected(path: Path, setup: Setup) -> Iterator[Problem]:
    for index, target in enumerate(setup.config.targets):
        if target.process is not None:
            try:
                refuse_protected(program_name(target.process.start))
            except ValueError as error:
                yield problem_at(path, str(error), "targets", index, "process", "start")


def _unreached_targets(path: Path, setup: Setup, steps: Sequence[Step]) -> Iterator[Problem]:
    reached = {step.target.key for step in steps if step.target is not None}
    for index, target in enumerate(setup.config.targets):
        if target.key not in reached:
            said = f"no alert of the rules leads to worker {target.worker} of run {target.run}"
            yield problem_at(path, said, "targets", index, "worker")


def _unnamed_playbooks(path: Path, rules: Sequence[AlertRule], setup: Setup) -> Iterator[str]:
    named = {rule.remediation for rule in rules}
    for name in setup.config.playbooks:
        if name not in named:
            yield str(problem_at(path, "no rule names it", "playbooks", name))


def _unreached_rungs(path: Path, steps: Sequence[Step]) -> Iterator[str]:
    """Rungs of ladders that lead nowhere here, though earlier ones do."""
    tried = {step.playbook for step in steps if step.where != "—"}
    for name, rung, how in dict.fromkeys(
        (s.playbook, s.rung, s.how) for s in steps if s.where == "—"
    ):
        if name in tried:
            yield f"{path}: rung {rung + 1} of playbook {name} is never tried: {how}"


def protected_now(path: Path, setup: Setup) -> Iterator[str]:
    """Targets of which something runs now that would never be ended."""
    try:
        processes = read_processes()
        trees = Matcher(setup.selectors).sort(processes)
    except CollectError:
        return
    for index, target in enumerate(setup.config.targets):
        for key in target.keys:
            tree = trees.get(key)
            if tree is not None and (why := protected(tree.members, processes)):
                said = f"never ended as it is matched now: {why}"
                yield str(problem_at(path, said, "targets", index))
