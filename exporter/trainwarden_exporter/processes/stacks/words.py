"""What processes do, as parts of sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Finding,
    KernelState,
    Member,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.waits import (
    FROZEN,
    Wait,
    is_of_events,
    waits_for_ray_task,
)


def names(findings: Sequence[Finding]) -> str:
    """Returns which processes wait: `rank 3 waits`."""
    ranks = sorted(one.member.rank for one in findings if one.member.rank is not None)
    if ranks:
        word, which = f"rank{'s' * (len(ranks) > 1)}", _ranges(ranks)
    elif len(findings) == 1:
        word, which = "", name_of(findings[0].member)
    else:
        pids = sorted(one.member.identity.pid for one in findings)
        word, which = "processes", f"{_ranges(pids)} of {findings[0].member.key.worker}"
    several = len(ranks or findings) > 1
    return f"{word} {which} {'wait' if several else 'waits'}".lstrip()


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] + 1 == number:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(
        f"{part[0]}–{part[-1]}" if len(part) > 1 else str(part[0])  # noqa: RUF001 - a range
        for part in parts
    )


def name_of(member: Member) -> str:
    """Returns how a process is called in texts."""
    if member.rank is not None:
        return f"rank {member.rank}"
    return f"process {member.identity.pid} of {member.key.worker}"


_WORDS = {
    Activity.MOVING: "runs",
    Activity.COLLECTIVE: "waits in",
    Activity.GPU: "waits for its GPU",
    Activity.SERVER: "waits for server",
    Activity.QUEUE: "waits for a queue",
    Activity.PIPE: "waits for a pipe",
    Activity.LOCK: "waits for a lock",
    Activity.SLEEP: "sleeps",
    Activity.DISK: "waits for a disk or mount",
    Activity.CHILD: "waits for a child process",
    Activity.PROMPT: "waits for you at a prompt",
    Activity.STOPPED: "is stopped",
    Activity.GONE: "does not run",
    Activity.IDLE: "waits for something unknown",
    Activity.UNKNOWN: "has not shown a stack yet",
}


_JOINTS = {Activity.LOCK: ", held by ", Activity.PIPE: " of ", Activity.QUEUE: " of "}

_IN_A_LINE = frozenset({
    Activity.SERVER, Activity.QUEUE, Activity.PIPE, Activity.LOCK, Activity.SLEEP, Activity.CHILD,
    Activity.PROMPT,
})  # fmt: skip
"""Waits that the line of the program explains better than the line of the library."""


def _own_line(stack: ThreadStack | None) -> str:
    """Returns ` at train.py:18`: the innermost call that is not of a library; else ""."""
    frames = () if stack is None else stack.frames
    own = next((one for one in frames if not one.is_of_library), None)
    return "" if own is None else f" at {own.file.rpartition('/')[2]}:{own.line}"


def describe(one: Finding) -> str:
    """Returns what a process does, as the part of a sentence."""
    text = f"{name_of(one.member)} {_WORDS[one.activity]}"
    if one.activity is Activity.MOVING and one.detail:
        text = f"{name_of(one.member)} computes or spins in {one.detail}"
    elif one.activity is Activity.IDLE:
        text = f"{name_of(one.member)} {_idle(one)}"
    elif one.activity is Activity.STOPPED and one.detail == FROZEN:
        text = f"{name_of(one.member)} is frozen with its cgroup"
    elif one.activity is Activity.SERVER and one.detail and not one.far_ends:
        text = f"{name_of(one.member)} waits for a server or an event in {one.detail}"
    elif Wait(one.activity, one.detail).is_futex:
        text += f" or another thread in {place(one.stacks.main(one.member.identity.pid))}"
    if one.activity is Activity.COLLECTIVE:
        text += f" {one.detail}"
    elif one.far_ends:
        text += _JOINTS.get(one.activity, " ") + ", ".join(end.text for end in one.far_ends)
    elif one.activity is Activity.DISK and one.detail:
        text += f" ({one.detail})"
    if one.activity in _IN_A_LINE and not Wait(one.activity, one.detail).is_futex:
        text += _own_line(one.stacks.main(one.member.identity.pid))
    return f"{text} while {one.phase}" if one.phase else text


def _idle(one: Finding) -> str:
    """Returns the word for a wait whose end nothing shows. A word only: it decides nothing."""
    stack = one.stacks.main(one.member.identity.pid)
    if one.far_ends:
        return "waits for"
    if stack is not None and stack.frames:
        if waits_for_ray_task(stack):
            return "waits for a task of Ray"
        if is_of_events(one.detail):
            return f"waits for an event in {place(stack)}"
    return _WORDS[Activity.IDLE]


def place(stack: ThreadStack | None) -> str:
    """Returns the innermost call of a stack and its file, without the folders."""
    if stack is None or not stack.frames:
        return "code that is not Python"
    frame = stack.frames[0]
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def kernel_text(kernel: KernelState) -> str:
    """Returns what /proc shows of a process in a few words."""
    parts = [f"state {kernel.state}", f"{kernel.cpu_seconds:.2f} s of CPU"]
    if kernel.wait_channel:
        parts.append(f"waits in {kernel.wait_channel}")
    return ", ".join(parts)
