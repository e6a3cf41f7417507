"""The seeded list of faults: the same for a program under every supervisor. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

FIRST = 100.0
"""Seconds from the begin to the earliest fault: the programs load, and make checkpoints."""
GAP = 840.0
"""Seconds from a fault that costs a program steps to its next fault, at least. Three restarts of a
worker within ten minutes are a restart loop to any sensible supervisor."""
SPREAD = 60.0
"""What is added to it, drawn evenly."""
HARMLESS_GAP = 120.0
PART_GAP = 240.0
PARTS = ("exporter", "prometheus", "alertmanager", "remediator")
STACK = "the stack"
"""Stands for a program in faults of a part of Trainwarden."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    text: str
    ill: bool = True
    """Whether the program is ill by it: a supervisor should start it again, at some time."""
    of_server: bool = False
    """Whether its inference server is to be started again, and not the program."""


KINDS: Mapping[str, Kind] = {
    "kill": Kind("SIGKILL to its process"),
    "hang": Kind("a step that waits for ever, for a queue that nobody fills"),
    "leak": Kind("32 MiB leak in each step; killed, as by the kernel, 512 MiB above the limit"),
    "half": Kind("SIGKILL in the middle of a save: half a checkpoint"),
    "disk": Kind("the disk of its checkpoints is full, and has space again after 100 s"),
    "port": Kind("SIGKILL, and a stranger listens on its port for 45 s"),
    "server_kill": Kind("SIGKILL to its inference server, a vLLM", of_server=True),
    "server_hang": Kind("SIGSTOP to the engine of its vLLM, for ever", of_server=True),
    "stop": Kind("SIGSTOP to its processes, SIGCONT after four minutes", ill=False),
    "nan": Kind("its loss is logged as NaN for 100 s; the weights are not touched", ill=False),
    "renamed": Kind("its log is renamed, and it goes on writing to it", ill=False),
    "truncated": Kind("its log is copied and truncated, as logrotate does", ill=False),
    "operator": Kind("an operator repairs it"),
    "part": Kind("SIGKILL to a part of Trainwarden", ill=False),
}
COSTLY = frozenset(
    name for name, kind in KINDS.items() if name == "stop" or (kind.ill and name != "operator")
)
"""The kinds by which a program makes no steps for some time, under any supervisor."""


@dataclass(frozen=True)
class Fault:
    """What befalls a program."""

    at: float
    """Seconds from the begin."""
    program: str
    kind: str
    part: str = ""
    """With the kind `part`: which one."""


def schedule(
    seed: int, programs: Mapping[str, Sequence[str]], seconds: float, *, gap: float = GAP
) -> tuple[Fault, ...]:
    """The faults of `programs` within so many seconds, in order of time.

    `programs` has the kinds that each can suffer; those of one program do not depend on which
    others there are. Kinds come in a shuffled order, each once before any comes again.
    """
    faults: list[Fault] = []
    for name, kinds in programs.items():
        if kinds:
            rng = random.Random(f"{seed}/{name}")  # noqa: S311 - no secret depends on it
            own = _of_program(rng, name, kinds, gap)
            faults += itertools.takewhile(lambda fault: fault.at < seconds, own)
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.program)))


def of_parts(seed: int, seconds: float) -> tuple[Fault, ...]:
    """The faults of the parts of Trainwarden within so many seconds."""
    rng = random.Random(f"{seed}/{STACK}")  # noqa: S311 - no secret depends on it
    at, faults = FIRST + rng.uniform(0, PART_GAP), []
    parts = _endless(rng, PARTS)
    while at < seconds:
        faults.append(Fault(at, STACK, "part", next(parts)))
        at += PART_GAP + rng.uniform(0, SPREAD)
    return tuple(faults)


def _of_program(rng: random.Random, name: str, kinds: Sequence[str], gap: float) -> Iterator[Fault]:
    at = FIRST + rng.uniform(0, gap)
    for kind in _endless(rng, kinds):
        yield Fault(round(at, 1), name, kind)
        at += (gap if kind in COSTLY else min(gap, HARMLESS_GAP)) + rng.uniform(0, SPREAD)


def _endless(rng: random.Random, values: Sequence[str]) -> Iterator[str]:
    while True:
        yield from rng.sample(values, len(values))
