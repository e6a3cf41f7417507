"""The report of one incident, as Markdown. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwarden_remediator.evidence.redaction import redacted
from trainwarden_remediator.reporting import followed
from trainwarden_remediator.reporting.account import Account
from trainwarden_remediator.reporting.boxtext import box
from trainwarden_remediator.reporting.causes import causes
from trainwarden_remediator.reporting.evidencetext import evidence, last_lines
from trainwarden_remediator.reporting.markdown import bullets, code, fence, link, table, text
from trainwarden_remediator.reporting.times import Times, after, took
from trainwarden_remediator.reporting.verdict import judge

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
RUNBOOKS = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks/"
LOG_LINES = 12
"""Of the log that says most, shown without being unfolded."""


@dataclass(frozen=True, slots=True)
class Style:
    """How reports are written: in whose time, and what the commands in them are called with."""

    times: Times = field(default_factory=Times)
    config_file: str = "remediator.yml"
    alertmanager_url: str = "http://127.0.0.1:9093"
    level: int = 1
    """Of the first heading."""
    whole: bool = True
    """Whether also what is only looked up is told: every event, and the evidence."""


def render(account: Account, style: Style, now: float) -> str:
    """The report of one incident, as it stands at `now` (Unix seconds)."""
    times, mark = style.times, "#" * style.level
    about = f" — {code(account.name)}" if account.run or account.worker else ""
    parts = [
        f"{mark} Incident {account.id}: {text(account.alert)}{about}",
        f"{judge(account).sentence}",
        _facts(account, times, now),
        f"{mark}# What was seen",
        _said(account),
        box(account, times),
        f"{mark}# Likely cause",
        bullets(causes(account, times)) or "Nothing was found that explains it.",
    ]
    if account.evidence and (found := last_lines(account.evidence[0], LOG_LINES)):
        parts += [f"The end of {code(found[0])} at that time:", fence(found[1])]
    parts += [f"{mark}# What was done", followed.acts(account, times)]
    if progress := followed.progress(account, times):
        parts += [f"{mark}# What followed", progress]
    parts += [
        f"{mark}# What to look at",
        "\n".join(_look_at(account, style)),
    ]
    if not style.whole:
        config = shlex.quote(style.config_file)
        command = f"trainwarden-remediator report {account.id} --config.file {config}"
        parts.append(f"Every event, and the evidence: {code(command)}")
        return "\n\n".join(part for part in parts if part) + "\n"
    parts += [f"{mark}# Minute by minute", _timeline(account, times)]
    if account.evidence:
        parts += [f"{mark}# Evidence", evidence(account.evidence, account.starts_at, times)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(account: Account, times: Times, now: float) -> str:
    end = account.ended_at
    rows = [
        ("Began", times.full(account.starts_at)),
        (
            "Heard",
            f"{times.clock(account.first_heard)}, {_later(account)} after it began",
        ),
    ]
    if account.deeds:
        first = account.deeds[0]
        rows.append(
            ("First act", f"{times.clock(first.at)} ({after(first.at, account.starts_at)})")
        )
    healed = [act for act in account.acts if act.outcome == "healed" and act.outcome_at]
    if healed and (at := healed[-1].outcome_at):
        rows.append(("Well again", f"{times.clock(at)} ({after(at, account.starts_at)})"))
    if end is None:
        rows.append(("Stands for", took(now - account.starts_at)))
    else:
        what = "Alert over" if account.resolved_at is not None else "Closed"
        rows.append((what, f"{times.clock(end)} ({after(end, account.starts_at)})"))
    if severity := account.labels.get("severity"):
        rows.append(("Severity", text(severity)))
    rows.append(("Playbook", code(account.remediation) or "none: the alert asks for no remedy"))
    return table(("", ""), ((f"**{name}**", value) for name, value in rows))


def _later(account: Account) -> str:
    return took(account.first_heard - account.starts_at)


def _said(account: Account) -> str:
    summary, description = (
        redacted(account.annotations.get(name, "")) for name in ("summary", "description")
    )
    said = [f"**{text(summary)}**"] if summary else []
    said += [text(description)] if description else []
    labels = {
        name: value
        for name, value in sorted(account.labels.items())
        if name not in ("alertname", "severity", "remediation", "job")
    }
    if labels:
        shown = ", ".join(
            f"{text(name)}={code(redacted(value)) or '—'}" for name, value in labels.items()
        )
        said.append(f"Labels: {shown}")
    return "\n\n".join(said) or "The alert came without a description."


def _look_at(account: Account, style: Style) -> Iterator[str]:
    """Links, and commands to try; nothing of an alert becomes part of a command unchecked."""
    yield bullets(_links(account))
    yield ""
    yield fence(_commands(account, style), "sh")


def _links(account: Account) -> Iterator[str]:
    if url := account.annotations.get("runbook_url"):
        yield f"Runbook: {link(url)}"
    elif _NAME.fullmatch(account.alert):
        yield f"Runbook: {link(f'{RUNBOOKS}{account.alert}.md')}"
    if url := account.annotations.get("dashboard_url"):
        yield f"Dashboard: {link(url)}"


def _commands(account: Account, style: Style) -> Iterator[str]:
    config = f"--config.file {shlex.quote(style.config_file)}"
    yield f"trainwarden-remediator journal {config}"
    paths = dict.fromkeys(
        str(log["path"]) for piece in account.evidence for log in piece.logs if log.get("path")
    )
    for path in list(paths)[:3]:
        if path.isprintable():
            yield f"tail -n 100 {shlex.quote(path)}"
    key = (account.run, account.worker)
    if all(map(_NAME.fullmatch, key)):
        run, worker = key
        yield f"trainwarden-remediator hold {config} --run {run} --worker {worker} --for 2h"
        yield (
            f"amtool silence add run={run} worker={worker} --duration=2h --comment='by hand' "
            f"--alertmanager.url={shlex.quote(style.alertmanager_url)}"
        )
    else:
        yield f"trainwarden-remediator hold {config} --for 2h"


def _timeline(account: Account, times: Times) -> str:
    rows = [(times.clock(account.starts_at), "0 s", "the alert began, by Prometheus' clock")]
    for event in account.events:
        said = followed.sentence(event)
        if event.kind not in ("start", "intent", "result", "outcome"):
            said = f"{text(event.kind)}: {said}"
        rows.append((times.clock(event.at), after(event.at, account.starts_at), said))
    return table(("time", "since", "what"), rows)
