"""What would be done for which alert: alert, playbook, rung, target and means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.logs.specs import log_specs
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.wording import span
from trainwarden_remediator.config import Setup
from trainwarden_remediator.crosscheck.rulefiles import AlertRule
from trainwarden_remediator.playbooks import MOST_TRIES, Playbook, Rung, Trouble
from trainwarden_remediator.seeing import BRAKE
from trainwarden_remediator.targets import Target

MEANS_LENGTH = 72


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the plan. `target` is None for what is about no worker."""

    alert: str
    playbook: str
    rung: int
    target: Target | None
    where: str
    how: str


def plan(rules: Iterable[AlertRule], setup: Setup) -> Sequence[Step]:
    """What the alerts that name a playbook would lead to, in the order of their names."""
    named = sorted({(rule.name, rule.remediation) for rule in rules if rule.remediation})
    found: list[Step] = []
    for alert, name in named:
        playbook = setup.config.playbook(name)
        if playbook is None:
            found.append(Step(alert, name, 0, None, "—", "nothing: there is no such playbook"))
            continue
        for index, rung in enumerate(playbook.ladder):
            blank = Step(alert, name, index, None, "—", f"nothing: {_lack(rung, playbook)}")
            found += [*_steps(blank, rung, playbook.trouble, setup)] or [blank]
    return found


def written(steps: Sequence[Step]) -> str:
    """The plan as a table, what repeats the line above left out."""
    rows = [("alert", "playbook", "target", "what is done")]
    before = ("", "")
    for step in steps:
        key = (step.alert, step.playbook)
        alert, playbook = ("", "") if key == before else key
        rows.append((alert, playbook, step.where, step.how))
        before = key
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]))
        for row in rows
    )


def _steps(blank: Step, rung: Rung, trouble: Trouble, setup: Setup) -> Iterator[Step]:
    config = setup.config
    if rung.action == "hold":
        for run in dict.fromkeys(target.run for target in config.targets):
            how = "hold: nothing else is done to it while the alert lasts"
            yield replace(blank, where=run, how=how)
    elif rung.action == "notify":
        yield replace(blank, where="a person", how="call a person, and go on with the next rung")
    elif rung.target == "gpus":
        if config.gpu_cleanup is not None:
            how = f"{_often(rung)}end what belongs to no worker and holds them"
            yield replace(blank, where="the GPUs", how=how)
    else:
        for target in _targets(rung, trouble, setup):
            where = "/".join(target.key)
            if rung.target == "largest_worker":
                where = f"{where}, if the largest"
            doing = "start" if trouble is Trouble.MISSING else rung.action
            how = f"{_often(rung)}{doing} it ({_kind(target)}): {_means(target)}"
            yield replace(blank, target=target, where=where, how=how)


def _often(rung: Rung) -> str:
    said = f"up to {rung.tries} times " if 1 < rung.tries < MOST_TRIES else ""
    if rung.when == "no_progress":
        after = "" if rung.after is None else f" for {span(rung.after)}"
        said = f"if healed and no step{after}: {said}"
    return said


def _kind(target: Target) -> str:
    return type(target.means).__name__.removesuffix("Target").lower()


def _means(target: Target) -> str:
    told = target.means.told
    return told if len(told) <= MEANS_LENGTH else f"{told[: MEANS_LENGTH - 2]} …"


def _targets(rung: Rung, trouble: Trouble, setup: Setup) -> Iterator[Target]:
    """Targets that such an alert can be about: of others there is no series that it looks at."""
    for target in setup.config.targets:
        if rung.target == "trainer":
            if any(setup.trains(key) for key in target.keys):
                yield target
        elif any(_is_watched_for(trouble, key, setup) for key in target.keys):
            yield target


def _is_watched_for(trouble: Trouble, key: WorkerKey, setup: Setup) -> bool:
    worker = _worker(key, setup)
    if worker is None:
        return False
    match trouble:
        case Trouble.OVER_MEMORY_LIMIT:
            return worker.memory_limit is not None
        case Trouble.OVER_AGE_LIMIT:
            return worker.age_limit is not None or worker.trials_limit is not None
        case Trouble.INFERENCE_DOWN:
            return any(
                server.worker == key.worker
                for run in setup.watched.runs
                if run.name == key.run
                for server in run.inference
            )
        case Trouble.BRAKING:
            return any(
                spec.worker == key.worker
                and any(BRAKE in pattern.name for pattern in spec.patterns)
                for run in setup.watched.runs
                if run.name == key.run
                for spec in log_specs(run)
            )
    return True


def _worker(key: WorkerKey, setup: Setup) -> WorkerConfig | None:
    return next(
        (
            worker
            for run in setup.watched.runs
            if run.name == key.run
            for worker in run.workers
            if worker.name == key.worker
        ),
        None,
    )


_LACKS = {
    Trouble.OVER_MEMORY_LIMIT: "no target has a memory_limit",
    Trouble.OVER_AGE_LIMIT: "no target has an age_limit or a trials_limit",
    Trouble.INFERENCE_DOWN: "no target serves an inference server",
    Trouble.BRAKING: "no log of a target has a pattern named …brake…",
}


def _lack(rung: Rung, playbook: Playbook) -> str:
    if rung.target == "gpus":
        return "`gpu_cleanup` does not allow it"
    if rung.action == "hold":
        return "there are no targets"
    if rung.target == "trainer":
        return "no target is a trainer (role: trainer)"
    return _LACKS.get(playbook.trouble, "there are no targets")
