"""Says what the processes of a run do together: moving or stuck, and which one the others wait for.

Pure. Unknown is not stuck: a run is stuck only if the stack of every process that makes its steps
shows a wait on this host, and nothing of the run moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.activity import sleeps_on
from trainwarden_exporter.processes.stacks.members import MAX_PROCESSES
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Finding,
    Movement,
    Suspect,
)
from trainwarden_exporter.processes.stacks.waits import (
    BACKWARD,
    RAY,
    normalised,
)
from trainwarden_exporter.processes.stacks.words import describe, names

_STUCK = frozenset({
    Activity.COLLECTIVE, Activity.SERVER, Activity.QUEUE, Activity.PIPE, Activity.LOCK,
})  # fmt: skip

_NEVER_STUCK = frozenset({
    Activity.MOVING, Activity.DISK, Activity.STOPPED, Activity.PROMPT,
})  # fmt: skip


def diagnose(
    findings: Sequence[Finding],
    outside: Mapping[Identity, bool],
    absent: Mapping[int | None, str] = MappingProxyType({}),
) -> Diagnosis:
    """Returns what the processes of a run do together.

    `outside` says of far ends that belong to no worker of the run whether they may act, and
    `absent` of ranks which collective they have not entered.
    """
    findings = _with_makers_below_a_shell(_with_spawned_ranks(findings))
    makers = [one for one in findings if one.member.is_trainer]
    if not makers:
        return Diagnosis(Movement.UNKNOWN, tuple(findings))
    suspects = _suspects(makers, findings, absent)
    chain = _chain(makers, suspects, findings, absent)
    if any(one.activity is Activity.MOVING for one in makers):
        movement = Movement.MOVING
    elif _is_stuck(makers, findings, suspects, outside):
        movement = Movement.STUCK
    else:
        movement = Movement.UNKNOWN
    return Diagnosis(movement, tuple(findings), suspects, chain)


def _with_spawned_ranks(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Returns `findings`, in which ranks that `torch.multiprocessing.spawn` has started make steps.

    Their launcher, which only waits for their ends, does not: they set RANK themselves, if at all,
    so that their environment does not show it.
    """
    keys = {one.member.key for one in findings if one.member.is_trainer}
    shown = dict[int, Finding]()
    for one in findings:
        main = one.stacks.main(one.member.identity.pid)
        if one.member.key in keys and main is not None and main.is_spawned_rank:
            shown[one.member.identity.pid] = one
    # A child that a rank has forked, as for its data loader, has the frames of the rank.
    ranks = [one.member for one in shown.values() if one.member.parent_pid not in shown]
    spawned, launchers = {one.identity for one in ranks}, {one.parent_pid for one in ranks}
    return [
        replace(one, member=replace(one.member, is_trainer=one.member.identity in spawned))
        if one.member.identity in spawned or one.member.identity.pid in launchers
        else one
        for one in findings
    ]


def _with_makers_below_a_shell(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Returns `findings`, in which the Python below a shell makes the steps of a trainer.

    Which of several Python programs trains, and which only helps, is not known: each that no other
    Python has started counts.
    """
    makers = [one for one in findings if one.member.is_trainer]
    keys = {one.member.key for one in makers}
    python = [one.member for one in findings if one.member.key in keys and one.stacks.is_python]
    if not python or any(one.stacks.is_python for one in makers):
        return findings
    pids = {one.identity.pid for one in python}
    tops = {one.identity for one in python if one.parent_pid not in pids}
    return [
        replace(one, member=replace(one.member, is_trainer=one.member.identity in tops))
        if one.member.key in keys
        else one
        for one in findings
    ]


def _is_stuck(
    makers: Sequence[Finding],
    findings: Sequence[Finding],
    suspects: Sequence[Suspect],
    outside: Mapping[Identity, bool],
) -> bool:
    if len(findings) >= MAX_PROCESSES:
        return False  # the others may move
    if any(one.activity in _NEVER_STUCK for one in findings):
        return False
    # Any process of the run whose stack cannot be read may do the work.
    if any(one.activity is Activity.UNKNOWN for one in findings):
        return False
    # The stack of a backward pass is the same whether it computes or waits for the gradients.
    awaited = [one.finding for one in suspects if one.finding is not None]
    if all(one.detail == BACKWARD for one in makers) or any(
        one.detail == BACKWARD for one in awaited
    ):
        return False
    inside = {one.member.identity: one for one in findings}
    if any(_waits_elsewhere(one, inside, outside) for one in findings):
        return False
    stands = [one for one in makers if _waits_for_ever(one, findings)]
    # However many ranks there are, none leaves a collective that this one does not enter.
    is_blocked = any(one.activity is not Activity.COLLECTIVE for one in stands)
    return all(
        one.phase != "saving" and (one in stands or (is_blocked and _is_in_collective(one)))
        for one in makers
    )


def _is_in_collective(one: Finding) -> bool:
    """Whether it is in a collective of a job whose number of ranks is not known."""
    return one.activity is Activity.COLLECTIVE and one.member.world is None and not one.may_end


def _waits_for_ever(one: Finding, findings: Sequence[Finding]) -> bool:
    """Whether a wait ends only if another process of the run does something."""
    if one.may_end or not _all_ranks_here(one):
        return False
    match one.activity:
        case Activity.SLEEP:
            return one.kernel is not None and sleeps_on(one.kernel)
        case Activity.QUEUE | Activity.LOCK | Activity.PIPE:
            below = _below(one, findings)
            if one.activity is Activity.PIPE and not all(map(_is_known, below)):
                return False  # such a child may write into it
            return not any(_may_go_on(child) for child in below)
        case Activity.CHILD:
            children = _awaited_children(one, findings)
            return (
                one.kernel is not None
                and one.kernel.is_endless
                and bool(children)
                and all(
                    _is_known(child) and not _may_go_on(child) and _waits_for_ever(child, findings)
                    for child in children
                )
            )
    return one.activity in _STUCK


def _is_known(child: Finding) -> bool:
    """Whether it is known for what a process waits: without Python, by the kernel alone."""
    shown = (Activity.PIPE, Activity.SLEEP, Activity.CHILD)
    return child.stacks.is_python or child.activity in shown


def _may_go_on(child: Finding) -> bool:
    """Whether a process may give its parent what that waits for."""
    kernel = child.kernel
    if child.activity is Activity.SERVER and (child.member.with_ray or not child.far_ends):
        return True
    if child.activity is Activity.SLEEP:
        return kernel is None or not sleeps_on(kernel)
    looks_around = child.activity is Activity.IDLE and child.stacks.is_python
    return child.may_end or (looks_around and kernel is not None and not kernel.is_endless)


def _below(one: Finding, findings: Sequence[Finding]) -> list[Finding]:
    found: dict[int, Finding] = {one.member.identity.pid: one}
    while more := {
        other.member.identity.pid: other
        for other in findings
        if other.member.parent_pid in found and other.member.identity.pid not in found
    }:
        found |= more
    return list(found.values())[1:]


def _awaited_children(one: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """Returns the child in whose end a process waits, or all of its children."""
    pid, number = one.member.identity.pid, one.kernel and one.kernel.file_number
    children = [other for other in findings if other.member.parent_pid == pid and other is not one]
    return [child for child in children if child.member.identity.pid == number] or children


def _waits_elsewhere(
    one: Finding, inside: Mapping[Identity, Finding], outside: Mapping[Identity, bool]
) -> bool:
    """Whether what a process waits for may go on: on another host, or in a process that acts."""
    if one.activity is Activity.SERVER:
        # The driver of Ray Train waits through Ray for its workers, and each of them is judged.
        # All of them have connections to Ray, so that for a worker these show nothing.
        if one.stacks.threads and one.detail == RAY and not one.member.with_ray:
            return True
        if (
            one.member.is_trainer
            and one.stacks.threads
            and (one.member.with_ray or not one.far_ends)
        ):
            return True
    return any(_may_act(end.identity, inside, outside) for end in one.far_ends)


def _may_act(
    end: Identity | None, inside: Mapping[Identity, Finding], outside: Mapping[Identity, bool]
) -> bool:
    if end is None or end not in inside:
        return end is None or outside.get(end, True)
    own = inside[end]
    return not own.member.is_trainer and _may_go_on(own)


def _all_ranks_here(one: Finding) -> bool:
    """Whether no rank runs on another host; a collective of unknown size may have one there."""
    world = one.member.world or (0 if one.activity is Activity.COLLECTIVE else 1)
    return world in (1, one.member.local_world)


def _suspects(
    makers: Sequence[Finding], findings: Sequence[Finding], absent: Collection[int | None]
) -> tuple[Suspect, ...]:
    """Returns the processes that the others wait for; empty if that is not known."""
    if gone := _gone(makers):
        return gone
    moving = [one for one in makers if one.activity is Activity.MOVING]
    if len(moving) == len(makers):
        return ()
    waiting = [one for one in makers if one.activity is Activity.COLLECTIVE]
    odd = [one for one in makers if one.activity is not Activity.COLLECTIVE]
    if waiting and not odd:
        odd = _odd_ones_out(waiting)
    elif not waiting:
        odd = odd if len(makers) == 1 else _odd_ones_out(odd)
    # Their stacks may all be the same, as in a backward pass.
    odd = [one for one in makers if one.member.rank in absent] or odd
    return tuple(
        Suspect(one.member.rank, one.member.key, one.activity, one)
        for one in (_last_of_chain(one, findings) for one in odd)
    )


def _gone(makers: Sequence[Finding]) -> tuple[Suspect, ...]:
    """Returns the ranks of this host that do not run."""
    first = makers[0].member
    if first.rank is None or not first.world or first.world != first.local_world:
        return ()
    seen = {one.member.rank for one in makers}
    return tuple(
        Suspect(rank, first.key, Activity.GONE) for rank in range(first.world) if rank not in seen
    )


def _odd_ones_out(findings: Collection[Finding]) -> list[Finding]:
    """Returns the processes with another stack than most, if most have the same."""
    groups = defaultdict[tuple[object, ...], list[Finding]](list)
    for one in findings:
        main = one.stacks.main(one.member.identity.pid)
        groups[one.activity, one.detail, normalised(main)].append(one)
    largest = max(groups.values(), key=len, default=[])
    if 2 * len(largest) <= len(findings) or len(groups) == 1:
        return []
    return [one for group in groups.values() if group is not largest for one in group]


def _last_of_chain(one: Finding, findings: Sequence[Finding]) -> Finding:
    """Returns the process at the end of the waits that begin at `one`."""
    seen = {one.member.identity}
    while (found := _next_of(one, findings)) is not None and found.member.identity not in seen:
        one = found
        seen.add(one.member.identity)
    return one


def _next_of(one: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Returns the process of the run that `one` waits for: a far end, or its only busy child."""
    known = {other.member.identity: other for other in findings}
    for end in one.far_ends:
        if end.identity in known:
            return known[end.identity]
    if one.activity not in (Activity.QUEUE, Activity.CHILD):
        return None
    children = _awaited_children(one, findings)
    at_work = [
        child
        for child in children
        if (child.stacks.threads or one.activity is Activity.CHILD)
        and child.activity not in (Activity.QUEUE, Activity.UNKNOWN)
    ]
    return at_work[0] if len(at_work) == 1 else None


def _chain(
    makers: Sequence[Finding],
    suspects: Sequence[Suspect],
    findings: Sequence[Finding],
    absent: Mapping[int | None, str],
) -> str:
    """Returns who waits for what, from most processes to the one at the end."""
    links = []
    waiting = [one for one in makers if one.activity is Activity.COLLECTIVE]
    if waiting and (suspects or len(waiting) == len(makers)):
        operations = Counter(one.detail for one in waiting)
        odd = {suspect.finding for suspect in suspects}
        same = [one for one in waiting if one not in odd]
        named = operations.most_common(1)[0][0]
        links.append(f"{names(same or waiting)} in {named}")
    links += [f"rank {one.rank} does not run" for one in suspects if one.finding is None]
    starts = [one for one in makers if one.activity is not Activity.COLLECTIVE]
    starts = starts if len(starts) < len(makers) or len(starts) == 1 else starts[:1]
    odd_in_collective = [
        suspect.finding
        for suspect in suspects
        if suspect.finding is not None and suspect.activity is Activity.COLLECTIVE
    ]
    shown = (one for one in starts if one.activity is not Activity.UNKNOWN)
    for start in (*shown, *odd_in_collective):
        first, *more = _links(start, findings)
        missed = absent.get(start.member.rank)
        links += [f"{first} and has not entered {missed}" if missed else first, *more]
    return " ← ".join(links)


def _links(one: Finding, findings: Sequence[Finding]) -> list[str]:
    """Returns what each does, up to a process without a stack so far: it explains no wait."""
    links, seen = [], {one.member.identity}
    while True:
        links.append(describe(one))
        found = _next_of(one, findings)
        if found is None or found.member.identity in seen or found.activity is Activity.UNKNOWN:
            break
        one = found
        seen.add(one.member.identity)
    return links
