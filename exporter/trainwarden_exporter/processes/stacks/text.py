"""Stacks as text for an operator. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from trainwarden_exporter.processes.stacks.diagnosis import describe, kernel_text
from trainwarden_exporter.processes.stacks.model import Activity, Diagnosis, Finding, ThreadStack
from trainwarden_exporter.processes.stacks.waits import normalised
from trainwarden_exporter.runtime.redaction import redact


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields the lines: what the run does, then its processes, the ones that others wait for first.

    Processes with the same stack are listed together. Values of variables are never read; what
    looks like a secret in a path is redacted.
    """
    yield f"{diagnosis.movement}: {redact(diagnosis.chain)}".removesuffix(": ")
    suspects = [one.finding for one in diagnosis.suspects]

    def group(one: Finding) -> tuple[bool, bool, str]:
        main = one.stacks.main(one.member.identity.pid)
        return one not in suspects, not one.member.is_trainer, repr(normalised(main))

    for _, same in groupby(sorted(diagnosis.findings, key=group), key=group):
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
    threads = sorted(stacks.threads, key=lambda thread: thread is not main)
    for thread in threads if findings[-1].activity is not Activity.GONE else ():
        yield from _thread(thread)


def _thread(thread: ThreadStack) -> Iterator[str]:
    yield f"    thread {thread.name or thread.tid}"
    for frame in thread.frames:
        yield f"        {redact(f'{frame.function} ({frame.file}:{frame.line})')}"
