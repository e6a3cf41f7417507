"""Whether the GPUs let a run start: there, free of leftovers, open to it, and sound."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trainwarden_exporter.findings import Finding, Subject
from trainwarden_exporter.gpu.holders import Holder, Survey
from trainwarden_exporter.gpu.reading import GpuKey, GpuReading
from trainwarden_exporter.gpu.view import GpuView
from trainwarden_exporter.processes.procfs import start_timestamp
from trainwarden_exporter.wording import plural, size, span

_MEMORY_IN_USE = 0.1
"""Share of a GPU's memory whose use is worth a warning; the driver alone may take some per cent."""


def check_driver(subject: Subject) -> Finding:
    """Refuses unless the driver can be used, or there is no GPU to use it for."""
    name = "gpu driver"
    if subject.gpu is None:
        return Finding(
            name,
            "refuse",
            f"it has not answered within {span(subject.patience)}",
            advice="look for XIDs in the kernel log (dmesg | grep NVRM); a reboot may be needed",
        )
    sight, expected = subject.gpu.sight, subject.gpu.expected
    if sight.state in ("absent", "no_devices") and not expected:
        return Finding(name, "ok", "no NVIDIA GPU here, and none expected")
    if sight.state != "ok":
        words = {"absent": "there is none", "no_devices": "it has no GPU"}
        seen = words.get(sight.state, "it cannot be used")
        reason = f" ({sight.reason})" if sight.reason else ""
        return Finding(
            name,
            "refuse",
            f"{seen}{reason}, {plural(expected, 'GPU')} expected",
            advice="see whether nvidia-smi works, and in a container whether it was given the GPUs",
        )
    versions = sight.versions
    seen = f"{versions.driver}, CUDA {versions.cuda}" if versions else "it answers"
    return Finding(name, "ok", seen)


def check_devices(subject: Subject) -> Finding | None:
    """Refuses when a GPU is missing or lost."""
    if (gpu := _usable(subject)) is None:
        return None
    found, lost = len(gpu.sight.gpus), gpu.sight.lost
    seen = f"{found} of {plural(gpu.expected, 'GPU')}"
    if found >= gpu.expected and not lost:
        return Finding("gpus", "ok", seen)
    return Finding(
        "gpus",
        "refuse",
        seen,
        tuple(f"{_name(key)} does not answer: it has fallen off the bus" for key in lost),
        "reset or reboot; if it stays away, have it inspected",
    )


def check_running(subject: Subject) -> Finding | None:
    """Refuses while the run that is to start runs already."""
    gpu = subject.gpu
    if gpu is None or not subject.config.runs:
        return None
    ours = [(key, process) for key, process in gpu.running if subject.run in (None, key.run)]
    if not ours:
        return Finding("run", "ok", "none of its workers runs")
    return Finding(
        "run",
        "refuse",
        f"it is running already: {_processes(len(ours))}",
        tuple(
            f"{key.run}/{key.worker}: pid {process.pid}, {process.name}" for key, process in ours
        ),
        "stop it first, or leave it alone",
    )


def check_holders(subject: Subject) -> Finding | None:
    """Refuses while a GPU is held by processes that belong to no worker."""
    if subject.gpu is None or (subject.gpu.sight.state == "absent" and not subject.gpu.expected):
        return None
    survey = subject.gpu.survey
    details = [describe_holder(holder, subject.now) for holder in survey.orphans]
    if details and subject.config.runs:
        return Finding(
            "gpu holders",
            "refuse",
            f"{_processes(len(details))} of no worker: an earlier run's leftovers, or a stranger",
            tuple(details),
            "trainwarden-remediator clean-gpu --dry-run shows what it would end; a holder that is"
            " meant to be there belongs under gpu.protected",
        )
    doubts = list(_doubts(subject, survey))
    if doubts or details:
        if details:  # without a run in the configuration, nobody can be a stranger to it
            doubts.insert(0, f"{_processes(len(details))}: whether rightly is not configured")
        return Finding("gpu holders", "warn", doubts[0], (*details, *doubts[1:]))
    looking = tuple(describe_holder(holder, subject.now) for holder in survey.observers)
    return Finding("gpu holders", "ok", "nothing holds them that should not", looking)


def check_compute_mode(subject: Subject) -> Finding | None:
    """Refuses a mode that keeps the run out, which looks like a leftover and is none."""
    if (gpu := _usable(subject)) is None:
        return None
    modes = {one.key: one.compute_mode for one in gpu.sight.gpus if one.compute_mode is not None}
    shared = subject.config.gpu.shared
    bad = {
        key: mode
        for key, mode in modes.items()
        if mode == "prohibited" or (shared and mode != "default")
    }
    if not bad:
        return Finding("compute mode", "ok", ", ".join(sorted(set(modes.values()))) or "not known")
    return Finding(
        "compute mode",
        "refuse",
        'processes will fail with "busy or unavailable", and no clean-up helps',
        tuple(f"{_name(key)} is in mode {mode}" for key, mode in bad.items()),
        f"nvidia-smi -i {','.join(key.gpu for key in bad)} -c DEFAULT; or, where one process to a"
        " GPU is meant, gpu.shared: false in the configuration",
    )


def check_memory(subject: Subject) -> Finding | None:
    """Refuses where less memory is free than was asked for; warns where much is in use."""
    if (gpu := _usable(subject)) is None:
        return None
    wanted = subject.memory_free
    details, short = [], False
    for one in gpu.sight.gpus:
        if one.memory is None:
            continue
        if wanted is not None and one.memory.free < wanted:
            short = True
            details.append(
                f"{_name(one.key)} has {size(one.memory.free)} free of {size(wanted)} wanted"
            )
        elif one.memory.used > _MEMORY_IN_USE * one.memory.total:
            whose = _accounted(one, gpu.survey)
            details.append(f"{_name(one.key)}: {size(one.memory.used)} in use{whose}")
    if not details:
        free = [one.memory.free for one in gpu.sight.gpus if one.memory is not None]
        return Finding(
            "gpu memory", "ok", f"{size(min(free))} free, at least" if free else "not known"
        )
    return Finding(
        "gpu memory",
        "refuse" if short else "warn",
        "too little is free" if short else "some is in use already",
        tuple(details),
        "find out who holds it; what nobody here holds is held from outside this container, or by a"
        " process that is gone: then reset the GPU, or have the machine restarted",
    )


def check_health(subject: Subject) -> Finding | None:
    """Warns of memory that is worn out."""
    if (gpu := _usable(subject)) is None:
        return None
    troubles = [
        f"{_name(one.key)}: {trouble}" for one in gpu.sight.gpus for trouble in _ailments(one)
    ]
    if not troubles:
        return Finding("gpu health", "ok", "no uncorrected memory errors, nothing left to remap")
    return Finding(
        "gpu health",
        "warn",
        "the memory of a GPU is damaged",
        tuple(troubles),
        "reset the GPU; replace it if this comes back",
    )


def _usable(subject: Subject) -> GpuView | None:
    return subject.gpu if subject.gpu is not None and subject.gpu.sight.state == "ok" else None


def _name(key: GpuKey) -> str:
    return f"GPU {key.gpu} ({key.uuid})" if key.uuid else f"GPU {key.gpu}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def describe_holder(holder: Holder, now: float) -> str:
    """A holder in one line: pid, owner, age, what it holds, command. `now` in Unix seconds."""
    age = span(max(0, round(now - start_timestamp(holder.process.identity))))
    held = "memory not known" if holder.memory_bytes is None else size(holder.memory_bytes)
    gpus = [key.gpu for key in holder.gpus if key.gpu]
    place = f"GPU {', '.join(gpus)}" if gpus else "the driver"
    listed = "" if holder.listed else ", not listed by the driver"
    kind = " (looks only: no CUDA)" if holder.looks_only else ""
    # a process chooses its command line, and might choose to steer the terminal it is shown on
    command = "".join(letter if letter.isprintable() else "?" for letter in holder.command)
    return (
        f"pid {holder.process.pid}, {holder.owner}, {age} old, {held} on {place}{listed}{kind}: "
        f"{textwrap.shorten(command, 120, placeholder=' …')}"
    )


def _doubts(subject: Subject, survey: Survey) -> Iterator[str]:
    unmapped = sum(survey.unmapped.values())
    if unmapped:
        yield f"{_processes(unmapped)} on the GPUs cannot be seen from here: gone, or elsewhere"
    if survey.unreadable:
        yield f"{_processes(survey.unreadable)} may not be looked into: run this as root to be sure"
    others = {
        f"{holder.worker.run}/{holder.worker.worker}"
        for holder in survey.holders
        if holder.worker is not None and subject.run not in (None, holder.worker.run)
    }
    if others:
        yield f"other runs are on the GPUs: {', '.join(sorted(others))}"


def _accounted(gpu: GpuReading, survey: Survey) -> str:
    known = [holder for holder in survey.holders if gpu.key in holder.gpus]
    if known:
        return f", held by pid {', '.join(str(holder.process.pid) for holder in known)}"
    return ", held by nobody that can be seen from here"


def _ailments(gpu: GpuReading) -> Iterator[str]:
    uncorrected = gpu.ecc_errors.get(("uncorrected", "volatile"), 0)
    if uncorrected:
        yield f"{plural(uncorrected, 'uncorrected memory error')} since the driver was loaded"
    if gpu.remapping is not None and gpu.remapping.failed:
        yield "a bad row could not be replaced: there is no spare one left"
    if gpu.remapping is not None and gpu.remapping.pending:
        yield "bad rows wait for a reset to be replaced"
    if gpu.retired_pages_pending:
        yield "bad pages wait for a reset to be retired"
