"""Real logs: steps, totals and ends, as `trainwarden autopsy` reads them and as a reader does.

The reader is a handful of expressions of its own, which share nothing with the layouts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bounds import share_at_most
from results import Result
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.gather import gather
from trainwarden.autopsy.verdict import Verdict

FILES = "logs/*"
_STEP = re.compile(
    r"\biteration\s+(\d+)\s*/\s*(\d+)|^\s*100%\|[^|]*\|\s*(\d+)/(\d+) \[", re.MULTILINE
)
_HF_TOTAL = re.compile(r"Total optimization steps\s*=\s*([\d,]+)")
_ENDS = (
    ("time limit", re.compile(r"DUE TO TIME LIMIT")),
    ("preempted", re.compile(r"DUE TO (?:PREEMPTION|NODE FAILURE)")),
    ("cancelled", re.compile(r"\*\*\* (?:JOB|STEP) .* CANCELLED AT")),
    ("finished", re.compile(r"train_runtime|\[after training is done\]|exiting program at iter")),
    (
        "failed",
        re.compile(r"Traceback \(most recent|out of memory|\berror:|Segmentation|core dumped"),
    ),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The last step, the total, and the end. None and empty where the log does not show it."""

    step: int | None
    total: int | None
    end: str


def by_reader(text: str) -> Reading:
    """What is in the lines. An error after which steps follow is no end."""
    text = text.replace("\r", "\n")
    steps = [
        (int(match[1] or match[3]), int(match[2] or match[4]), match.end())
        for match in _STEP.finditer(text)
    ]
    tail = text[steps[-1][2] :] if steps else text
    end = next((name for name, regex in _ENDS if regex.search(tail)), "stops")
    total = _HF_TOTAL.search(text)
    if total is not None:  # other bars, such as of a tokenizer, count something else
        own = int(total[1].replace(",", ""))
        counted = [step for step, of, _ in steps if of == own]
        return Reading(max(counted, default=None), own if counted else None, end)
    if not steps:
        return Reading(None, None, end)
    return Reading(steps[-1][0], steps[-1][1], end)


_CAUSES = {"time_limit": "time limit", "preempted": "preempted", "cancelled": "cancelled"}


def by_autopsy(path: Path) -> tuple[str, Reading]:
    """The framework and the reading. Raises OSError."""
    verdict = Verdict(Case(gather(path, read_kernel_log=lambda: None)))
    case = verdict.case
    latest = case.latest
    step = None if latest is None else latest.last_step
    total = None if latest is None else latest.total
    end = "finished" if case.finished else "stops"
    if not case.finished and verdict.likely:
        cause = verdict.likely[0].cause.name
        seen = {kind for log in case.logs for kind in log.tallies}
        outside = next((name for kind, name in _CAUSES.items() if kind in seen), "failed")
        end = {"unknown_end": "stops", "ended_from_outside": outside}.get(cause, "failed")
    return case.material.framework.name, Reading(step, total, end)


def table(paths: list[Path]) -> Result:
    rows, agree = [], 0
    for path in paths:
        reader = by_reader(path.read_text(errors="replace"))
        framework, ours = by_autopsy(path)
        agree += ours == reader
        rows.append(
            (
                path.name,
                framework,
                f"{_shown(ours.step)} of {_shown(ours.total)}",
                f"{_shown(reader.step)} of {_shown(reader.total)}",
                ours.end,
                reader.end,
                "yes" if ours == reader else "**no**",
            )
        )
    missed = share_at_most(len(paths) - agree, len(paths))
    return Result(
        "Logs",
        f"Step, total and end of {agree} of {len(paths)} logs are as a reader finds them; with "
        f"95 % confidence at most {100 * missed:.0f} % of such logs are read otherwise.",
        ("log", "framework", "last step", "reader", "end", "reader", "agree"),
        tuple(rows),
    )


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)
