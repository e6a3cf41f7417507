"""Stacks as text for an operator. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from trainwarden_exporter.processes.stacks.model import Activity, Diagnosis, Finding, ThreadStack
from trainwarden_exporter.processes.stacks.waits import normalised
from trainwarden_exporter.processes.stacks.words import describe, kernel_text
from trainwarden_exporter.runtime.redaction import redact


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields the lines: what the run does, then its processes, the ones that others wait for first.

    Values of variables are never read; what looks like a secret in a path is redacted.
    """
    yield f"{diagnosis.movement}: {redact(diagnosis.chain)}".removesuffix(": ")
    if diagnosis.dumps:
        yield diagnosis.dumps
    yield ""
    suspects = [one.finding for one in diagnosis.suspects if one.finding is not None]
    yield from render_findings(diagnosis.findings, suspects)


def as_data(run: str, diagnosis: Diagnosis) -> dict[str, object]:
    """Returns the same for programs, redacted alike; a process in `suspects` is waited for."""
    return {
        "run": run,
        "movement": diagnosis.movement,
        "chain": redact(diagnosis.chain),
        "dumps": diagnosis.dumps,
        "suspects": [one.finding.member.identity.pid for one in diagnosis.suspects if one.finding],
        "processes": [
            {
                "worker": one.member.key.worker,
                "pid": one.member.identity.pid,
                "rank": one.member.rank,
                "activity": one.activity,
                "text": redact(describe(one)),
                "problem": redact(one.stacks.problem),
                "threads": [
                    {
                        "name": thread.name,
                        "tid": thread.tid,
                        "frames": [
                            {
                                "function": redact(frame.function),
                                "file": redact(frame.file),
                                "line": frame.line,
                            }
                            for frame in thread.frames
                        ],
                    }
                    for thread in _current_threads(one)
                ],
            }
            for one in diagnosis.findings
        ],
    }


def render_findings(
    findings: Sequence[Finding], suspects: Collection[Finding] = ()
) -> Iterator[str]:
    """Yields the lines of the processes: `suspects` first, then the makers of the steps.

    Processes with the same stack are listed together, the smallest groups first.
    """
    stack = {
        id(one): repr(normalised(one.stacks.main(one.member.identity.pid))) for one in findings
    }
    sizes = Counter(stack.values())

    def group(one: Finding) -> tuple[bool, bool, int, str]:
        shown = stack[id(one)]
        return one not in suspects, not one.member.is_trainer, sizes[shown], shown

    for number, (_, same) in enumerate(groupby(sorted(findings, key=group), key=group)):
        if number:
            yield ""
        yield from _group(list(same))


def _group(findings: Sequence[Finding]) -> Iterator[str]:
    for one in findings:
        text = f"{one.member.key.worker}, pid {one.member.identity.pid}: {redact(describe(one))}"
        if one.kernel is not None:
            text += f" ({kernel_text(one.kernel)})"
        yield text
    stacks = findings[-1].stacks
    if stacks.problem:
        yield f"    no Python stack: {redact(stacks.problem)}"
    main = stacks.main(findings[-1].member.identity.pid)
    for thread in sorted(_current_threads(findings[-1]), key=lambda thread: thread is not main):
        yield from _thread(thread)


def _current_threads(one: Finding) -> Sequence[ThreadStack]:
    """Returns the stacks of a process; those of an ended process are of the past."""
    return () if one.activity is Activity.GONE else one.stacks.threads


def _thread(thread: ThreadStack) -> Iterator[str]:
    yield f"    thread {thread.name or thread.tid}"
    for frame in thread.frames:
        yield f"        {redact(f'{frame.function} ({frame.file}:{frame.line})')}"
