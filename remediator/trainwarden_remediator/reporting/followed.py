"""What came of what was done: of each act, and of the run as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainwarden_exporter.wording import plural
from trainwarden_remediator import story
from trainwarden_remediator.evidence.redaction import redacted
from trainwarden_remediator.records import Event
from trainwarden_remediator.reporting.account import Account, Act
from trainwarden_remediator.reporting.markdown import bullets, code, text
from trainwarden_remediator.reporting.times import Times, after, took

_DOING = {
    "restart": "Restart of",
    "gpu_cleanup": "End of leftovers on",
    "command": "Command for",
    "notify": "Call of",
}


def acts(account: Account, times: Times) -> str:
    """What was done, rung by rung, with what came of each."""
    if not account.acts:
        why = [(reason, detail) for reason, detail in account.reasons if reason != "hold"]
        said = [
            f"{text(story.reason_in_words(reason))}{f' ({text(detail)})' if detail else ''}"
            for reason, detail in why
        ]
        return "Nothing was done." + (f"\n\n{bullets(dict.fromkeys(said))}" if said else "")
    told = [f"{line}\n" for line in (*_waited(account, times), *_doubts(account, times))]
    for number, act in enumerate(account.acts, start=1):
        what = _DOING.get(act.kind, f"{text(act.kind)} on")
        rung = f", rung {act.rung + 1} of playbook {code(account.remediation)}"
        told.append(
            f"{number}. **{what} {code(act.name)}** at {times.clock(act.at)} "
            f"({after(act.at, account.starts_at)}){rung}: {_came_of(act)}\n"
            + "\n".join(f"    - {line}" for line in _steps(account.of(act), times))
        )
    return "\n".join(told)


def progress(account: Account, times: Times) -> str:
    """How the run went on: its steps, its checkpoint, and what was lost."""
    return bullets(_progress(account, times))


def _waited(account: Account, times: Times) -> Iterator[str]:
    """Why it was not acted upon at once."""
    for event in account.events:
        early = event.at < account.acts[0].at
        if early and event.kind == "decision" and event.facts.get("verdict") == "wait":
            why = text(story.reason_in_words(str(event.facts["reason"])))
            detail = event.facts.get("detail")
            more = f" ({text(str(detail))})" if detail else ""
            yield f"It waited from {times.clock(event.at)} on: {why}{more}."


def _doubts(account: Account, times: Times) -> Iterator[str]:
    """What could not be excluded when it was acted upon."""
    for event in account.events:
        detail = event.facts.get("detail")
        if detail and event.kind == "decision" and event.facts.get("verdict") == "act":
            yield f"It was acted upon at {times.clock(event.at)} although {text(str(detail))}."


def _came_of(act: Act) -> str:
    if act.kind == "notify":
        return "the message was handed over"
    if act.outcome == "healed":
        return "**healed**"
    if act.outcome is not None:
        return "**did not help**" if act.result == "done" else "**failed**"
    if act.result == "interrupted":
        return "**cut short**"
    return "done, not verified yet" if act.result else "under way"


def _steps(events: Sequence[Event], times: Times) -> Iterator[str]:
    for event in events:
        if event.kind not in ("intent", "decision"):
            yield f"{times.clock(event.at)} {sentence(event)}"


def sentence(event: Event) -> str:
    """What happened, in words, without secrets."""
    said = redacted(story.sentence(event))
    return f"started: {code(said)}" if event.kind == "start" else text(said)


def _progress(account: Account, times: Times) -> Iterator[str]:
    for act in account.acts:
        outcome = next((e for e in account.of(act) if e.kind == "outcome"), None)
        if outcome is not None:
            yield from _down_time(account, act, outcome)
            yield from _steps_of(act, outcome.facts, account, times)
    yield from _at_the_end(account, times)


def _down_time(account: Account, act: Act, outcome: Event) -> Iterator[str]:
    stopped = next((e.at for e in account.of(act) if e.kind in ("stop", "end")), None)
    started = next((e.at for e in account.of(act) if e.kind == "start"), None)
    if stopped is not None and started is not None:
        yield f"{code(act.name)} was not running for {took(started - stopped)}."
    if outcome.facts.get("outcome") == "healed":
        what, since = ("begun", act.at) if started is None else ("started", started)
        yield f"Seen to be well {took(outcome.at - since)} after it was {what}."


def _steps_of(act: Act, facts: Any, account: Account, times: Times) -> Iterator[str]:
    if act.step is not None:
        saved = ""
        if act.checkpoint is not None:
            saved = f"; its newest complete checkpoint was of step {act.checkpoint:g}"
            if (at := _saved_at(account, act)) is not None:
                saved += f", saved {times.clock(at)}, {took(act.at - at)} before"
        yield f"The run had made {act.step:g} steps when it was acted upon{saved}."
    first, step = facts.get("first_step"), facts.get("step")
    if (resumed := facts.get("resume_step")) is not None and first is not None:
        lost = (act.step or 0) - (first - 1)
        again = f": {plural(round(lost), 'step')} made again" if lost > 0 else ": no step was lost"
        yield f"It resumed from step {resumed:g}; its first step then was {first:g}{again}."
    elif step is not None and act.step is not None:
        yield f"When it was seen to be well the run was at step {step:g}."


def _saved_at(account: Account, act: Act) -> float | None:
    for piece in account.evidence:
        if piece.action == act.id:
            found: float | None = piece.seen("runs").get(act.run, {}).get("checkpoint_at")
            return found
    return None


def _at_the_end(account: Account, times: Times) -> Iterator[str]:
    piece = next((one for one in reversed(account.evidence) if one.kind == "end"), None)
    run = {} if piece is None else piece.seen("runs").get(_run_of(account), {})
    if piece is None or not run:
        return
    step, phase = run.get("step"), run.get("phase")
    at = f"When it was over ({times.clock(piece.at)}), the run was"
    said = [f"at step {step:g}"] if step is not None else []
    said += [f"in phase {text(str(phase))}"] if phase else []
    if run.get("checkpoint") is not None:
        said.append(f"with a complete checkpoint of step {run['checkpoint']:g}")
    if said:
        yield f"{at} {', '.join(said)}."
    before = next((act.step for act in account.acts if act.step is not None), None)
    if before is not None and step is not None:
        gone = step - before
        yield (
            f"It went on: {plural(round(gone), 'step')} more than when it was acted upon."
            if (gone > 0)
            else f"**It has not made a step since** (it was at step {before:g})."
        )


def _run_of(account: Account) -> str:
    return account.run or (account.acts[-1].run if account.acts else "")
