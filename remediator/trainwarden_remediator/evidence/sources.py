"""Where evidence comes from: the process table, logs, memory and GPUs of the box.

Every source is a call that may block for ever, so each is made in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainwarden_exporter.collectors.host import CGROUP_ROOT, HostConfig, read_room
from trainwarden_exporter.gpu.checks import describe_holder
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.logs.listing import read_places
from trainwarden_exporter.logs.specs import LogSpec, log_specs
from trainwarden_exporter.memorycgroup import find_memory_cgroup, read_allowance, read_oom_kills
from trainwarden_remediator.config import Setup
from trainwarden_remediator.evidence.logtail import LINES, cut, read_tail
from trainwarden_remediator.evidence.occasion import Occasion
from trainwarden_remediator.evidence.processtable import read_table
from trainwarden_remediator.evidence.redaction import redacted

Source = Callable[[], Any]
Look = Callable[[Any], GpuView]

OTHER_LINES = 15
"""Lines of the logs of the run that the target does not write itself."""
MOST_LOGS = 8
MOST_HOLDERS = 20


def sources(occasion: Occasion, setup: Setup, *, look: Look = look_at_gpus) -> Mapping[str, Source]:
    """What to ask, by the name under which it is missed where it does not answer."""
    found: dict[str, Source] = {
        "processes": partial(read_table, occasion.key, occasion.processes, setup.selectors),
        "memory": partial(read_memory, setup.watched.host),
        "gpus": partial(read_gpus, setup, look),
    }
    for name, source in _logs(occasion, setup):
        if len(found) < MOST_LOGS + 3:
            found.setdefault(f"log {name}", source)
    return found


def read_memory(config: HostConfig, cgroup_root: Path = CGROUP_ROOT) -> Mapping[str, Any]:
    """Bytes that there are, can still be had and should stay; of a cgroup what it may hold.

    Raises CollectError.
    """
    total, available, floor = read_room(config, cgroup_root=cgroup_root)
    facts = {"total": total, "available": available, "floor": floor}
    cgroup = find_memory_cgroup(cgroup_root, config.cgroup)
    allowance = None if cgroup is None else read_allowance(cgroup)
    if cgroup is not None and (kills := read_oom_kills(cgroup)) is not None:
        facts |= {"oom_kills": kills}
    if allowance is not None:
        facts |= {"cgroup_limit": allowance.limit_bytes}
        facts |= {"cgroup_working_set": allowance.working_set_bytes}
    return facts


def read_gpus(setup: Setup, look: Look) -> Mapping[str, Any]:
    """How the driver stands, and who holds the GPUs. It blocks for as long as the driver does."""
    view = look(setup.watched)
    now = time.time()
    return {
        "driver": view.sight.state,
        "reason": view.sight.reason,
        "devices": [
            {
                "gpu": gpu.key.gpu,
                "name": gpu.name,
                "used": gpu.memory.used if gpu.memory else None,
                "total": gpu.memory.total if gpu.memory else None,
            }
            for gpu in view.sight.gpus
        ],
        "lost": [key.gpu for key in view.sight.lost],
        "holders": [
            {
                "worker": "/".join(holder.worker) if holder.worker else "",
                "orphan": holder.orphan,
                "is": cut(redacted(describe_holder(holder, now))),
            }
            for holder in view.survey.holders[:MOST_HOLDERS]
        ],
    }


def _logs(occasion: Occasion, setup: Setup) -> Iterator[tuple[str, Source]]:
    """The target's own logs first, then those of the other parts of its run."""
    target = setup.config.target(occasion.key)
    process = None if target is None else target.process
    if process is not None and (kept := process.log) is not None:
        yield f"output of {occasion.key.worker}", partial(_read_output, occasion, kept)
    run = occasion.key.run or occasion.run
    specs = [spec for one in setup.watched.runs if one.name == run for spec in log_specs(one)]
    own = [spec for spec in specs if _is_of(spec, occasion.key.worker)]
    for spec in (*own, *(spec for spec in specs if spec not in own)):
        lines = LINES if spec in own else OTHER_LINES
        yield spec.name, partial(_read_log, spec, lines)


def _is_of(spec: LogSpec, worker: str) -> bool:
    return not worker or spec.worker == worker


def _read_output(occasion: Occasion, path: Path) -> Any:
    tail = read_tail(f"output of {occasion.key.worker}", str(path))
    return None if tail is None else tail.as_facts()


def _read_log(spec: LogSpec, lines: int) -> Any:
    """The end of the file of a log that was written to last; None where there is none."""
    for path, _ in read_places(spec):
        tail = read_tail(spec.name, path, lines)
        if tail is not None:
            return tail.as_facts()
    return None
