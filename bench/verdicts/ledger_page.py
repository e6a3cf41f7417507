"""docs/ledger.md: how well the exporter accounts for the time of modelled runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bounds import share_at_most
from trainwarden_exporter.progress.run_time import RunState
from verdicts.ledger import WATCHED_BADLY, Account
from verdicts.ledger_cost import ALLOWED as COST_ALLOWED
from verdicts.ledger_cost import RUNS, Cost

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"
ALLOWED = 0.01
"""Share of the wall clock by which the time in a state may be wrong."""

HEAD = """\
# The ledger

Written by `make bench-ledger`: the runs of [verdicts.md](verdicts.md), and some that are hard to
account for, are played without the rules, and `trainwarden_run_time_seconds_total` is compared with
what the model of the run did, state by state. The exporter's own code follows the lines, the files
and the processes of each run, is restarted, and finds its state file again.

A stretch counts when something shows what it was: the next line, the next look, the files of a
checkpoint, which have the times of the save, or a limit. So the account may know more than the
alerts knew at the time.

What counts as true: the state in which the model is. What no line and no file of the framework
shows belongs to the step: an evaluation that is not announced is training, and so is a wait for a
server that is down, unless it takes longer than the stall limit of the run: then it is a stall.
Time in which nobody looked for more than a minute may be `unknown` or the true state. So may a run
that shows nothing at all, and one without a log until its first checkpoint is begun: between its
start and its first step nothing changes that the exporter looks at. Time that is not counted yet is
not compared; a row of its own says how much that is.
"""


def page(accounts: Sequence[Account], seed: int, cost: Cost) -> str:
    """The page; the same for the same accounts and costs."""
    wrong = [one for one in accounts if one.worst > ALLOWED]
    telling = [one for one in accounts if one.tells_steps]
    apart = [one for one in accounts if one.missing > ALLOWED]
    miscounted = [one for one in telling if not one.steps_right]
    redone = sum(one.true_steps[1] > 0 for one in telling)
    behind = sorted(one.behind for one in accounts)
    lines = [
        HEAD,
        "| | | at most, with 95 % confidence |",
        "|---|--:|--:|",
        f"| seed | {seed} | |",
        f"| runs | {len(accounts)} | |",
        _bounded("states that do not add up to the time counted", len(apart), len(accounts)),
        _bounded("with a state that is wrong by over 1 % of the run", len(wrong), len(accounts)),
        f"| median of the largest error of a run | {_share(median(o.worst for o in accounts))} | |",
        f"| runs whose log tells each step | {len(telling)} | |",
        f"| of these, with steps that were lost and redone | {redone} | |",
        _bounded(
            "with a wrong number of made, redone or lost steps", len(miscounted), len(telling)
        ),
        f"| seconds not counted yet at the end, median | {median(behind):.0f} | |",
        f"| most | {behind[-1]:.0f} | |",
        "",
        "## By state",
        "",
        "| state | true hours | counted hours | runs with it | wrong by over 1 % | largest error |",
        "|---|--:|--:|--:|--:|--:|",
        *(row for state in RunState for row in _state(state, accounts)),
        "",
        "## Where it is hard to account for",
        "",
        "| what happens | runs | wrong by over 1 % | largest error | steps wrong |",
        "|---|--:|--:|--:|--:|",
        *_hard(accounts),
        "",
    ]
    lines += _cost(cost)
    if wrong or miscounted:
        lines += ["## What is wrong by over 1 %", ""]
        lines += ["| run | framework | what | counted | true |", "|---|---|---|--:|--:|"]
        lines += [*(row for one in wrong for row in _wrong(one))]
        lines += [
            f"| {one.case.name} | {one.case.framework} | steps made, redone, lost "
            f"| {_steps(one.steps)} | {_steps(one.true_steps)} |"
            for one in miscounted
        ]
        lines.append("")
    return "\n".join(lines)


def _cost(cost: Cost) -> Iterator[str]:
    known = sorted(cost.seconds)
    p95 = known[int(0.95 * len(known))]
    yield "## What it costs"
    yield ""
    yield f"CPU time of the account of {RUNS} runs, its files included, in {len(known)} scrapes. A"
    yield "quarter of the runs make a step between two scrapes. The machine did other things, too."
    yield ""
    yield "| | | at most, with 95 % confidence |"
    yield "|---|--:|--:|"
    yield f"| median of a scrape | {1e3 * median(known):.2f} ms | |"
    yield f"| 95 of 100 scrapes at most | {1e3 * p95:.2f} ms | |"
    over = _bounded(f"scrapes that took more than {1e3 * COST_ALLOWED:g} ms", cost.over, len(known))
    yield over
    yield f"| kept on disk, with a day in parts | {cost.kept / 1024:.0f} KiB | |"
    yield ""


def _bounded(what: str, count: int, of: int) -> str:
    return f"| {what} | {count} | {100 * share_at_most(count, of):.2g} % |"


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


def _steps(steps: tuple[int, int, int]) -> str:
    return ", ".join(map(str, steps))


def _state(state: RunState, accounts: Sequence[Account]) -> Iterator[str]:
    found = [one for one in accounts if one.most.get(state) or one.counted.get(state)]
    if not found:
        return
    errors = [one.error(state) for one in found]
    true = sum(one.least.get(state, 0.0) for one in found) / 3600
    counted = sum(one.counted.get(state, 0.0) for one in found) / 3600
    over = sum(error > ALLOWED for error in errors)
    yield (
        f"| {state} | {true:.1f} | {counted:.1f} | {len(found)} | {over} | {_share(max(errors))} |"
    )


HARD = (
    "its clock is set forward",
    "its clock is set back",
    "its machine stands still",
    "the exporter restarts twice",
    "finishes, the exporter restarts",
    "Prometheus restarts",
    "loses two scrapes in a row",
    "is out of reach for two minutes",
    "the host reboots",
    "the host reboots again and again",
    "the exporter dies",
    "the exporter is scraped too seldom",
    "a run resumes from the same step again and again",
    "is restarted by an operator",
    *(night.name for night in WATCHED_BADLY),
)
"""Restarts of the exporter, gaps, clocks that are set, reboots, and steps that are redone."""


def _hard(accounts: Sequence[Account]) -> Iterator[str]:
    for name in HARD:
        runs = [one for one in accounts if one.case.name == name]
        if runs:
            over = sum(one.worst > ALLOWED for one in runs)
            largest = _share(max(one.worst for one in runs))
            steps = sum(not one.steps_right for one in runs)
            yield f"| {name} | {len(runs)} | {over} | {largest} | {steps} |"


def _wrong(one: Account) -> Iterator[str]:
    for state in RunState:
        if one.error(state) > ALLOWED:
            least, most = one.least.get(state, 0.0), one.most.get(state, 0.0)
            true = f"{least:.0f} s" if most - least < 1 else f"{least:.0f} to {most:.0f} s"
            yield (
                f"| {one.case.name} | {one.case.framework} | {state} "
                f"| {one.counted.get(state, 0.0):.0f} s | {true} |"
            )
