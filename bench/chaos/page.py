"""docs/chaos.md, and a summary for the terminal, from what a run found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles
from typing import Any

from bounds import rate_at_most, share_at_most
from chaos.faults import COSTLY, HARMLESS_GAP, KINDS, SPREAD
from chaos.measures import Healing, Measures, measure
from chaos.striking import PATIENCE
from results import Result

RESAMPLES = 2000
CALMER = (1, 3, 12)
"""Hours between two faults that cost steps, for the arithmetic."""
WITHIN = 300.0
"""Seconds after a fault by which it should be healed, and an operator alerted."""
HEAD = """\
# Chaos

Real programs, real faults, no model: what `make chaos` (`MINUTES=…`, `SEED=…`) saw. Programs of
real frameworks train tiny models on a CPU with steps of about a second, and faults befall them by a
seeded list: the same list for a program under each supervisor, all at the same time on one host.
What the faults cost is measured by what each program records of its own steps and starts; nothing
that a supervisor reports counts.

{conditions}

- **ETTR**: the share of the time since a program's first step in which it made steps that it had
  not made before. After a fault that costs steps, the next one comes {after_costly} later, and
  after another one {after_harmless}: far more than a real run sees, so this is no ETTR of a real
  run, but for comparison of the rows. The bound is by resampling programs.
- **Next new step**: seconds from a fault to the first step that had not been made before, so with
  detection, restart, loading and the steps since the checkpoint. For a full disk and a taken port
  they count from the end of these: nothing heals before. Faults of the last five minutes that were
  not healed yet are left out. To load: from the last start to its first step, in the median.
- **Wrong act**: a start of a program that trains and that no fault befell since it was started, or
  that had finished; of an inference server, a start of what answers and was not struck itself. A
  trainer whose server was struck counts as not struck.
- **Without a step**: starts that ended before their first step, of a server before an answer.
- **By an operator**: programs that did not train when the next fault was due and not {patience:.0f}
  seconds later either, so about {operator:.0f} minutes after a fault that costs steps. There an
  operator deletes a checkpoint that is incomplete, ends what hangs and starts what is down; that is
  not counted as healed.
"""
TAIL = """\
## What this does not show

- One host, one seed, tiny models, one process for each run but for Ray: no GPU, no collective, no
  network disk, no loading of large weights. A step of the clock was not tried, since the clock is
  that of the whole host.
{server}
- The programs write checkpoints every 10 or 20 steps; steps made again are few for that reason.
- The supervisors that know nothing of training cannot see a hang: they are 0 there by design, and
  are here for what that costs.
- Under Trainwarden the Trainers resume from the checkpoint that it names; under the others from
  the newest one, complete or not, as `get_last_checkpoint` has it. The plain loops take the newest
  file that can be read, and do not expect an empty one.
"""


SERVER_LIMITS = """\
- One inference server, a real vLLM on the CPU with random weights, beside one loop that takes
  samples for five steps at once from it, and under Trainwarden alone: no second server, no update
  of its weights."""


@dataclass(frozen=True)
class Row:
    """Programs under one supervisor."""

    name: str
    programs: Mapping[str, Measures]
    faults: Sequence[Mapping[str, Any]]

    @property
    def healings(self) -> list[Healing]:
        """Without faults of whose healing too little was seen."""
        found = (one for each in self.programs.values() for one in each.healings)
        return [one for one in found if one.healed or one.until_next >= WITHIN]

    @property
    def hours(self) -> float:
        return sum(one.wall for one in self.programs.values()) / 3600

    @property
    def struck(self) -> list[Mapping[str, Any]]:
        return [one for one in self.faults if "skipped" not in one and one["kind"] != "operator"]

    @property
    def repaired(self) -> int:
        return sum(one["kind"] == "operator" for one in self.faults)


def rows(found: Mapping[str, Any]) -> list[Row]:
    """Each supervisor, and Trainwarden a second time with only the programs of the others."""
    made = [_row(name, own, found["end"]) for name, own in found["supervisors"].items()]
    fewest = min((row.programs for row in made), key=len, default={})
    largest = max(made, key=lambda row: len(row.programs))
    if len(largest.programs) > len(fewest):
        some = {name: one for name, one in largest.programs.items() if name in fewest}
        faults = [one for one in largest.faults if one["program"] in some]
        made.append(Row(f"{largest.name}, the programs of the others", some, faults))
    return made


def _row(name: str, own: Mapping[str, Any], end: float) -> Row:
    measures = {
        program: measure(
            one["events"],
            [f for f in own["faults"] if f["program"] == program],
            end,
            one.get("server", ()),
        )
        for program, one in own["programs"].items()
    }
    return Row(name, measures, own["faults"])


def summary(found: Mapping[str, Any]) -> list[str]:
    """Lines for a terminal."""
    return [result.text() for result in _tables(found)] + list(_wrongs(found))


def page(found: Mapping[str, Any]) -> str:
    """docs/chaos.md."""
    abouts = [f"- **{name}**: {one['about']}." for name, one in found["supervisors"].items()]
    notes = [f"- {note}" for note in found.get("notes", ())]
    wrong = list(_wrongs(found)) or ["There was none."]
    parts = [
        HEAD.format(
            conditions=_conditions(found),
            after_costly=_minutes(found["gap"]),
            after_harmless=_minutes(min(found["gap"], HARMLESS_GAP)),
            patience=PATIENCE,
            operator=(found["gap"] + SPREAD / 2 + PATIENCE) / 60,
        ),
        "\n".join(["## Supervisors", "", *abouts, ""]),
        *(table.page() for table in _tables(found)),
        "\n".join(["## Each wrong act", "", *wrong, ""]),
        *(["\n".join(["## What the faults showed", "", *notes, ""])] if notes else []),
        TAIL.format(server=_server_limits(found)),
    ]
    return "\n".join(parts)


def _server_limits(found: Mapping[str, Any]) -> str:
    programs = [one for row in found["supervisors"].values() for one in row["programs"].values()]
    if not any(one.get("server") for one in programs):
        return "- No inference server is among the programs."
    return SERVER_LIMITS


def _minutes(gap: float) -> str:
    return f"{gap / 60:.0f} to {(gap + SPREAD) / 60:.0f} minutes"


def _conditions(found: Mapping[str, Any]) -> str:
    load, minutes = found["load"] or [math.nan], (found["end"] - found["begin"]) / 60
    programs = sum(len(one["programs"]) for one in found["supervisors"].values())
    late = [1000 * one for one in found.get("late", ())]
    lateness = (
        f" A process that slept for ten seconds was {median(late):.0f} ms late in the median, and "
        f"{_p95(late):.0f} ms in one look of twenty."
        if late
        else ""
    )
    return (
        f"{minutes:.0f} minutes, seed {found['seed']}, {programs} programs at once on "
        f"{found['processors']} processors: load {median(load):.1f} in the median, "
        f"{max(load):.1f} at most.{lateness}"
    )


def _tables(found: Mapping[str, Any]) -> Iterable[Result]:
    made = rows(found)
    yield Result(
        "What they cost",
        "In brackets with 95 % confidence: ETTR at least, wrong acts in a program-hour at most.",
        (
            *("supervisor", "programs", "hours", "faults", "ETTR", "started again and trained"),
            *("next new step, median", "95 %", "of it to load", "steps made again"),
            *("without a step", "by an operator", "wrong acts"),
        ),
        tuple(_cost(row) for row in made),
    )
    yield Result(
        "What a fault cost",
        "Seconds without a step that had not been made before, in the mean of a kind, from the "
        "fault to the next fault that costs steps: with what no supervisor can shorten (a stop "
        "lasts four minutes, a full disk 100 s), with the steps made again, and where nobody "
        "healed it, with the time until an operator came. By arithmetic, and not measured: the "
        "ETTR at a fault of this mean cost every so many hours (≤: an operator would come later).",
        ("fault", *(row.name for row in made)),
        (
            *(
                (KINDS[kind].text, *(_mean_loss(row, {kind}) for row in made))
                for kind in KINDS
                if kind in COSTLY
            ),
            ("all of these", *(_mean_loss(row, COSTLY) for row in made)),
            *(
                (f"ETTR, one in {hours} h", *(_calmer(row, hours) for row in made))
                for hours in CALMER
            ),
        ),
    )
    yield Result(
        "By kind of fault",
        "How many were healed, and the median of seconds to the next new step.",
        ("fault", *(row.name for row in made)),
        tuple(
            (kind.text, *(_healed(row, name) for row in made))
            for name, kind in KINDS.items()
            if kind.ill and name != "operator"
        ),
    )
    yield Result(
        "What no restart heals",
        "Faults without need of a start. A wrong act that followed one is among those below.",
        ("fault", *(row.name for row in made)),
        tuple(
            (kind.text, *(str(sum(one["kind"] == name for one in row.struck)) for row in made))
            for name, kind in KINDS.items()
            if not kind.ill
        ),
    )
    seen = list(_seen(found))
    if seen:
        yield Result(
            "What the on-call would have seen",
            "Under Trainwarden: alerts for the on-call, active and not inhibited, within five "
            "minutes of a fault that an operator must know of; Alertmanager notifies 10 s later of "
            "critical ones, and five minutes later of warnings. A restart in the meantime would be "
            "among the wrong acts, or the starts without a step.",
            ("fault", "of", "alerted", "seconds, median", "alerts"),
            tuple(seen),
        )


def _losses(row: Row, kinds: Collection[str]) -> list[float]:
    all_ = (loss for one in row.programs.values() for loss in one.losses)
    return [seconds for kind, seconds in all_ if kind in kinds]


def _mean_loss(row: Row, kinds: Collection[str]) -> str:
    return _seconds(_losses(row, kinds), mean)


def _calmer(row: Row, hours: float) -> str:
    losses = _losses(row, COSTLY)
    at_most = "≤ " if row.repaired else ""
    return f"{at_most}{100 * (1 - mean(losses) / 3600 / hours):.1f} %" if losses else ""


def _cost(row: Row) -> tuple[str, ...]:
    healings = row.healings
    healed = [one.seconds for one in healings if one.seconds is not None]
    loads = [one.load for one in healings if one.load is not None]
    wrong = sum(len(one.wrong) for one in row.programs.values())
    unhealed = share_at_most(len(healings) - len(healed), len(healings)) if healings else math.nan
    again = sum(one.again for one in row.programs.values())
    steps = sum(one.steps for one in row.programs.values())
    return (
        row.name,
        str(len(row.programs)),
        f"{row.hours:.1f}",
        str(len(row.struck)),
        f"{100 * _ettr(row.programs.values()):.1f} % ({100 * _ettr_at_least(row):.0f} %)",
        f"{len(healed)} of {len(healings)} (≥ {100 * (1 - unhealed):.0f} %)",
        _seconds(healed, median),
        _seconds(healed, _p95),
        _seconds(loads, median),
        f"{again} of {steps + again}",
        str(sum(one.fruitless for one in row.programs.values())),
        str(row.repaired),
        f"{wrong} (≤ {rate_at_most(wrong, row.hours):.2g})",
    )


def _ettr(measures: Iterable[Measures]) -> float:
    all_ = list(measures)
    wall = sum(one.wall for one in all_)
    return sum(one.training for one in all_) / wall if wall else math.nan


def _ettr_at_least(row: Row) -> float:
    """The ETTR that nineteen of twenty samples of as many programs exceed."""
    rng = random.Random(1)  # noqa: S311 - no secret depends on it
    all_ = list(row.programs.values())
    samples = sorted(_ettr(rng.choices(all_, k=len(all_))) for _ in range(RESAMPLES))
    return samples[RESAMPLES // 20]


def _healed(row: Row, kind: str) -> str:
    own = [one for one in row.healings if one.kind == kind]
    if not own:
        return ""
    seconds = [one.seconds for one in own if one.seconds is not None]
    return f"{len(seconds)} of {len(own)}" + (f", {median(seconds):.0f} s" if seconds else "")


def _seconds(values: Sequence[float], of: Callable[[Sequence[float]], float]) -> str:
    return f"{of(values):.0f} s" if values else ""


def _p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def _seen(found: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for one in found["supervisors"].values():
        alerts = one.get("alerts", ())
        for kind in ("nan", "disk", "stop") if alerts else ():
            faults = [f for f in one["faults"] if f["kind"] == kind and "skipped" not in f]
            first = [
                (float(due[0]["from"]) - fault["from"], due[0]["alertname"])
                for fault in faults
                if (due := _after(fault, alerts))
            ]
            delays, which = [delay for delay, _ in first], {name for _, name in first}
            names = ", ".join(sorted(which))
            yield (
                KINDS[kind].text,
                str(len(faults)),
                str(len(first)),
                _seconds(delays, median),
                names,
            )


def _after(
    fault: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The alerts of the program that began soon after the fault, the first one first."""
    own = [one for one in alerts if one["run"] == fault["program"]]
    due = [one for one in own if 0 <= one["from"] - fault["from"] <= WITHIN]
    return sorted(due, key=lambda one: float(one["from"]))


def _wrongs(found: Mapping[str, Any]) -> Iterable[str]:
    """A line for each program and reason, with all minutes."""
    for name, own in found["supervisors"].items():
        for program, one in _row(name, own, found["end"]).programs.items():
            for reason in dict.fromkeys(wrong.reason for wrong in one.wrong):
                times = [wrong.time for wrong in one.wrong if wrong.reason == reason]
                minutes = [f"{(time - found['begin']) / 60:.1f}" for time in times]
                when = minutes[0] if len(minutes) == 1 else f"{minutes[0]} to {minutes[-1]}"
                yield f"- {name}, {program}, minute {when}, {len(times)}x: {reason}."
