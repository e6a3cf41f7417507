"""The results of `check`: problems that must be fixed, notes, and the plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.config_file.loader import problem_at
from trainwarden_exporter.exceptions import CollectError, Problem
from trainwarden_exporter.gpu.holders import program_name
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_remediator.actions.termination import protection_reason
from trainwarden_remediator.config.restart_methods.base import refuse_protected
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config_check.plan import PlanStep, plan
from trainwarden_remediator.config_check.routing import AlertRouting
from trainwarden_remediator.config_check.rule_files import AlertRule


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check; the configuration is invalid if there are `problems`."""

    problems: Sequence[Problem]
    notes: Sequence[str]
    steps: Sequence[PlanStep]


def cross_check(
    path: Path, setup: Setup, rules: Sequence[AlertRule], alertmanager: Path | None, *, port: int
) -> CheckResult:
    """Checks the configuration at `path` against rules and an alertmanager.yml.

    `port`: the port that the remediator listens on. Raises ConfigError if a file cannot be read.
    """
    steps = plan(rules, setup)
    problems = [*_protected_programs(path, setup), *_unknown_playbooks(rules, setup)]
    notes = [*_unreached_rungs(path, steps), *_several_trainers(path, setup)]
    if rules:
        problems += _unreached_targets(path, setup, steps)
        notes += _unnamed_playbooks(path, rules, setup)
    notes += protected_targets(path, setup)
    notes += weak_selectors(path, setup, as_root=os.geteuid() == 0)
    if alertmanager is not None:
        routing = AlertRouting(alertmanager, setup.config, port=port)
        problems += routing.problems(rules)
        notes += routing.notes(rules)
    return CheckResult(problems, notes, steps)


def _unknown_playbooks(rules: Sequence[AlertRule], setup: Setup) -> Iterator[Problem]:
    for rule in rules:
        name = rule.remediation
        if name and setup.config.playbook(name) is None:
            where = f"alert {rule.name}: labels.remediation"
            line = rule.lines["remediation"]
            yield Problem(rule.path, line, where, f"there is no playbook {name}")


def _protected_programs(path: Path, setup: Setup) -> Iterator[Problem]:
    for index, target in enumerate(setup.config.targets):
        if target.process is not None:
            try:
                refuse_protected(program_name(target.process.start))
            except ValueError as error:
                yield problem_at(path, str(error), "targets", index, "process", "start")


def _unreached_targets(path: Path, setup: Setup, steps: Sequence[PlanStep]) -> Iterator[Problem]:
    reached = {step.target.key for step in steps if step.target is not None}
    for index, target in enumerate(setup.config.targets):
        if target.key not in reached:
            message = f"no alert of the rules reaches worker {target.worker} of run {target.run}"
            yield problem_at(path, message, "targets", index, "worker")


def _unnamed_playbooks(path: Path, rules: Sequence[AlertRule], setup: Setup) -> Iterator[str]:
    named = {rule.remediation for rule in rules}
    for name in setup.config.playbooks:
        if name not in named:
            yield str(problem_at(path, "no rule names this playbook", "playbooks", name))


def _unreached_rungs(path: Path, steps: Sequence[PlanStep]) -> Iterator[str]:
    """Yields the rungs without a target in playbooks that have other rungs with one."""
    tried = {step.playbook for step in steps if step.where != "—"}
    idle = (step for step in steps if step.where == "—")
    for name, rung, how in dict.fromkeys((step.playbook, step.rung, step.how) for step in idle):
        if name in tried:
            yield f"{path}: rung {rung + 1} of playbook {name} is never tried: {how}"


def _several_trainers(path: Path, setup: Setup) -> Iterator[str]:
    targets = setup.config.targets
    for run in dict.fromkeys(target.run for target in targets):
        if several := setup.describe_several_trainers(run):
            first, *others = setup.trainers(run)
            names = ", ".join(key.worker for target in others for key in target.keys)
            message = (
                f"{several}: if run {run} stalls as a whole, none is restarted. To restart all,"
                f" write one target with `additional_workers: [{names}]` and a `start` of all"
            )
            yield str(problem_at(path, message, "targets", targets.index(first)))


def protected_targets(path: Path, setup: Setup) -> Iterator[str]:
    """Yields the targets whose current processes include a protected one."""
    try:
        processes = read_processes()
        trees = Matcher(setup.selectors).assign(processes)
    except CollectError:
        return
    for index, target in enumerate(setup.config.targets):
        for key in target.keys:
            tree = trees.get(key)
            if tree is not None and (why := protection_reason(tree.members, processes)):
                message = f"never terminated with its current processes: {why}"
                yield str(problem_at(path, message, "targets", index))


def weak_selectors(path: Path, setup: Setup, *, as_root: bool) -> Iterator[str]:
    """Yields the targets whose processes another account could choose.

    `as_root`: whether the remediator is root.
    """
    for index, target in enumerate(setup.config.targets):
        for key in target.keys:
            match = setup.selectors.get(key)
            if match is None:
                continue
            given = {name for name in type(match).model_fields if getattr(match, name) is not None}
            if given == {"pid_file"}:
                message = f"`match` of {key.worker} has only a pid file: add `command` or `user`"
                yield str(problem_at(path, message, "targets", index))
            elif as_root and match.user is None:
                message = (
                    f"`match` of {key.worker} names no account: a process of any account with "
                    "such a command line counts; set `user` of its run or worker"
                )
                yield str(problem_at(path, message, "targets", index))
