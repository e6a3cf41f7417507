"""The plan: which action each alert leads to, on which target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.run_specs import log_specs
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_remediator.config.playbooks import MAX_TRIES, Condition, Playbook, Rung
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.config_check.rule_files import AlertRule
from trainwarden_remediator.journal.terminal import fit
from trainwarden_remediator.observation.exporter_page import EMERGENCY_BRAKE_PATTERN

SUMMARY_LENGTH = 72


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One line of the plan. `target`: None if the step has no worker."""

    alert: str
    playbook: str
    rung: int
    target: Target | None
    where: str
    how: str


def plan(rules: Iterable[AlertRule], setup: Setup) -> Sequence[PlanStep]:
    """Returns the steps of all alerts that name a playbook, by alert name."""
    named = sorted({(rule.name, rule.remediation) for rule in rules if rule.remediation})
    has_servers = any(run.inference for run in setup.exporter_config.runs)
    found: list[PlanStep] = []
    for alert, name in named:
        playbook = setup.config.playbook(name)
        if playbook is None:
            found.append(PlanStep(alert, name, 0, None, "—", "nothing: there is no such playbook"))
            continue
        if playbook.condition is Condition.INFERENCE_DOWN and not has_servers:
            found.append(PlanStep(alert, name, 0, None, "—", "nothing: no run has a server"))
            continue
        for index, rung in enumerate(playbook.ladder):
            why = f"nothing: {_why_unreachable(rung, playbook)}"
            blank = PlanStep(alert, name, index, None, "—", why)
            found += [*_steps(blank, rung, playbook.condition, setup)] or [blank]
    return found


def format_plan(steps: Sequence[PlanStep], width: int) -> str:
    """Formats the plan as a table, without repeated alert and playbook names.

    Its lines keep to `width`; 0 is endless.
    """
    rows = [("alert", "playbook", "target", "action")]
    before = ("", "")
    for step in steps:
        key = (step.alert, step.playbook)
        alert, playbook = ("", "") if key == before else key
        rows.append((alert, playbook, step.where, step.how))
        before = key
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    last = sum(widths) + 2 * len(widths)
    return "\n".join(
        fit("  ".join((*map(str.ljust, row[:3], widths), row[3])), last, width) for row in rows
    )


def _steps(blank: PlanStep, rung: Rung, trouble: Condition, setup: Setup) -> Iterator[PlanStep]:
    config = setup.config
    if rung.action == "hold":
        for run in dict.fromkeys(target.run for target in config.targets):
            how = "hold: no other action while the alert fires"
            yield replace(blank, where=run, how=how)
    elif rung.action == "notify":
        yield replace(blank, where="on-call", how="notify on-call and continue with the next rung")
    elif rung.target == "gpus":
        if config.gpu_cleanup is not None:
            how = f"{_repetition(rung)}terminate processes of no worker that hold them"
            yield replace(blank, where="the GPUs", how=how)
    else:
        for target in _targets(rung, trouble, setup):
            where = "/".join(target.key)
            if rung.target == "largest_worker":
                where = f"{where}, if the largest"
            doing = "start" if trouble is Condition.MISSING else rung.action
            how = f"{_repetition(rung)}{doing} it ({_kind(target)}): {_restart_summary(target)}"
            yield replace(blank, target=target, where=where, how=how)


def _repetition(rung: Rung) -> str:
    message = f"up to {rung.tries} times " if 1 < rung.tries < MAX_TRIES else ""
    if rung.when == "no_progress":
        after = "" if rung.after is None else f" for {format_duration(rung.after)}"
        message = f"if healed and no step{after}: {message}"
    return message


def _kind(target: Target) -> str:
    return type(target.restart_method).__name__.removesuffix("Target").lower()


def _restart_summary(target: Target) -> str:
    summary = target.restart_method.summary
    return summary if len(summary) <= SUMMARY_LENGTH else f"{summary[: SUMMARY_LENGTH - 2]} …"


def _targets(rung: Rung, trouble: Condition, setup: Setup) -> Iterator[Target]:
    """Yields the targets that the condition can apply to (the exporter has the required series)."""
    for target in setup.config.targets:
        if rung.target == "trainer":
            if setup.trainers(target.run) == (target,):
                yield target
        elif any(_can_have(trouble, key, setup) for key in target.keys):
            yield target


def _can_have(trouble: Condition, key: WorkerKey, setup: Setup) -> bool:
    run, worker = setup.run_config(key.run), setup.workers.get(key)
    if run is None or worker is None:
        return False
    match trouble:
        case Condition.OVER_MEMORY_LIMIT:
            return worker.memory_limit is not None
        case Condition.OVER_AGE_LIMIT:
            return worker.age_limit is not None or worker.trials_limit is not None
        case Condition.INFERENCE_DOWN:
            return any(server.worker == key.worker for server in run.inference)
        case Condition.BRAKING:
            return any(
                spec.worker == key.worker
                and any(EMERGENCY_BRAKE_PATTERN in pattern.name for pattern in spec.patterns)
                for spec in log_specs(run)
            )
    return True


_UNREACHABLE = {
    Condition.OVER_MEMORY_LIMIT: "no target has a memory_limit",
    Condition.OVER_AGE_LIMIT: "no target has an age_limit or a trials_limit",
    Condition.INFERENCE_DOWN: "no target serves an inference server",
    Condition.BRAKING: "no log of a target has a pattern named …brake…",
}


def _why_unreachable(rung: Rung, playbook: Playbook) -> str:
    if rung.target == "gpus":
        return "`gpu_cleanup` does not allow it"
    if rung.action == "hold":
        return "there are no targets"
    if rung.target == "trainer":
        return "no run has exactly one target with the role trainer"
    return _UNREACHABLE.get(playbook.condition, "there are no targets")
