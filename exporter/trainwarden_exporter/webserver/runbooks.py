"""The runbooks of the shipped alerts, for a host without a way to the web."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from trainwarden_exporter.webserver.markdown import web_address

_HERE = Path(__file__).resolve()
FOLDERS = (
    _HERE.parents[3] / "docs" / "runbooks",
    _HERE.parents[2] / "trainwarden" / "stack" / "docs" / "runbooks",
)
"""Where the runbooks are: in a clone, and in an installed package."""

PUBLISHED = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks/"
"""Where the annotation `runbook_url` of the shipped rules leads."""

ALERTMANAGER = "Alertmanager"
ALERTMANAGER_STEP = (
    "See whether it runs: `pgrep -af alertmanager`. If not, start it; its log says why it ended. "
    "If it does: is it at the address `alertmanager: url:` of remediator.yml? Until it answers, no "
    "fault is healed and nobody is called: `trainwarden status` shows how the runs are."
)
"""What an operator does first where Alertmanager does not answer: no alert reports that."""

MAX_STEP_LENGTH = 200
"""Characters of a first step, after its first sentence."""
MAX_NAME_LENGTH = 200
"""Characters of a name before a step: the names in an alert are untrusted input."""
FINITE_UNTIL = "the last finite value"
"""Stands in a first step for the last step with a finite value, where that is not known."""
_STEP = re.compile(r"^(?:\d+\.|-) |\n\n", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.?]) (?=[A-Z`])")
_RUN = re.compile(r"(`trainwarden [^`]*)\bRUN\b")
_PATH = re.compile(r"(`[^`]*)\bPATH\b")
_NAME = re.compile(r"[A-Za-z0-9]{1,100}")


def read_runbook(name: str) -> str | None:
    """Returns the runbook of an alert as Markdown; None if there is none. Raises OSError."""
    if not _NAME.fullmatch(name):
        return None
    found = (folder / f"{name}.md" for folder in FOLDERS)
    path = next((path for path in found if path.is_file()), None)
    return None if path is None else path.read_text(encoding="utf-8")


def first_step(alert: str, labels: Mapping[str, str]) -> str:
    """Returns what the runbook of an alert says to do first; "" without a runbook.

    The text has commands and names in backticks; RUN in a command is the run of the alert, and PATH
    the folder of its label `path`, from the configuration of the exporter. A step
    that begins with the value of a label, such as `slow` of a cause, is for that value.
    """
    try:
        runbook = read_runbook(alert) or ""
    except OSError:
        return ""
    section = runbook.partition("## Diagnosis\n")[2].partition("\n## ")[0]
    steps = [" ".join(step.split()) for step in _STEP.split(section) if step.strip()]
    steps = [step for step in steps if step != ":"]
    own = [step for step in steps if any(_is_for(step, value) for value in labels.values())]
    if own:
        step = own[0].partition(":")[2].strip()
        step = step[:1].upper() + step[1:]
    else:
        step = next(iter(steps), "")
        if step.endswith(":") and len(steps) > 1:  # a list follows
            step = f"{step} {steps[1]}"
    shown, *more = _SENTENCE.split(step)
    for sentence in more:
        if len(shown) + len(sentence) >= MAX_STEP_LENGTH or sentence.endswith(":"):
            break
        shown += f" {sentence}"
    shown = shown.replace("*", "")
    path = labels.get("path", "")
    if is_shown(path):
        shown = _PATH.sub(lambda found: f"{found[1]}{shlex.quote(path)}", shown)
    run = labels.get("run")
    return _RUN.sub(lambda found: f"{found[1]}{shlex.quote(run)}", shown) if run else shown


def is_shown(path: str) -> bool:
    """Whether a path is shown in backticks: it is untrusted input."""
    return bool(path) and path.isprintable() and "`" not in path and len(path) <= MAX_NAME_LENGTH


NOTHING_SAVED = "no complete checkpoint of it is known: it begins at step 0"
"""Of a run with a value that is not finite, and without a checkpoint from before it."""
_RESUMES = re.compile(r"Then resume from .*? proved one[^.]*\.")
IF_KNOWN = ", if known"
"""Whether `trainwarden checkpoints` names one, as long as the step of the last finite loss is not
known."""


def with_finite_step(step: str, finite_until: float | None, sound: str | None = "") -> str:
    """Returns the text of a first step with the last step that had a finite value, if known.

    `sound`: the path of the newest proved checkpoint from before, if known; None if no complete one
    is known.
    """
    if sound is None:
        return _RESUMES.sub(f"{NOTHING_SAVED.capitalize()}.", step)
    if finite_until is None or FINITE_UNTIL not in step:
        return step
    named = f" That is `{sound}`." if sound else ""
    known = step.replace(FINITE_UNTIL, f"step {finite_until:,.0f}")
    return known.replace(IF_KNOWN, "") + named


@dataclass(frozen=True, slots=True)
class FirstStep:
    """What an operator does first about an alert, or without a run about a program or the host."""

    name: str
    step: str
    run: str = ""
    worker: str = ""

    @property
    def label(self) -> str:
        """Such as `demo/trainer, TrainingWorkerGone`."""
        return f"{self._about}{self.name}"

    @property
    def as_html(self) -> tuple[str, str]:
        """Its label as HTML, with a link to the runbook, and the step as text."""
        return f"{escape(self._about)}{runbook_link(self.name)}", self.step

    @property
    def _about(self) -> str:
        about = "/".join(one[:MAX_NAME_LENGTH] for one in (self.run, self.worker) if one)
        return f"{about}, " if about else ""


def distinct_steps(steps: Iterable[FirstStep]) -> list[FirstStep]:
    """Returns the first step of each alert of each target that has one, in the same order."""
    found: dict[str, FirstStep] = {}
    for one in steps:
        if one.step:
            found.setdefault(one.label, one)
    return list(found.values())


def _is_for(step: str, value: str) -> bool:
    heads = step.partition(":")[0]
    return bool(value) and f"`{value}`" in heads and heads.startswith("`")


@cache
def runbook_names() -> frozenset[str]:
    return frozenset(path.stem for folder in FOLDERS for path in folder.glob("*.md"))


def runbook_link(alert: str) -> str:
    """Returns the name of an alert as HTML, with a link to its runbook if there is one."""
    if alert not in runbook_names():
        return escape(alert)
    return f'<a href="runbook/{alert}">{alert}</a>'


def local_runbook(target: str, *, prefix: str = "") -> str | None:
    """Returns the address at which a link to a runbook is served here, else as `web_address`.

    `prefix`: the relative path from the page to the root of the server.
    """
    name = target.removeprefix(PUBLISHED).removesuffix(".md")
    if target.endswith(".md") and name in runbook_names():
        return f"{prefix}runbook/{name}"
    return web_address(target)
