"""GPU checks before a run: presence, leftover processes, access and health."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_exporter.gpu.holders import Survey, describe_holder
from trainwarden_exporter.gpu.model import GpuKey, GpuReading
from trainwarden_exporter.gpu.snapshot import GpuSnapshot
from trainwarden_exporter.preflight.report import Finding, PreflightContext
from trainwarden_exporter.runtime.formatting import format_duration, format_size, plural

_MEMORY_IN_USE = 0.1
"""Share of GPU memory in use that causes a warning; the driver alone may use a few percent."""


def check_driver(context: PreflightContext) -> Finding:
    """Refuses unless the driver works, or neither a GPU nor an expectation of one exists."""
    name = "gpu driver"
    if context.gpu is None:
        return Finding(
            name,
            "refuse",
            f"no answer within {format_duration(context.timeout)}",
            advice="look for XIDs in the kernel log (dmesg | grep NVRM); a reboot may be needed",
        )
    driver, expected = context.gpu.driver, context.gpu.expected
    if driver.state in ("absent", "no_devices") and not expected:
        return Finding(name, "ok", "no NVIDIA GPU present, none expected")
    if driver.state != "ok":
        words = {"absent": "no driver", "no_devices": "driver without a GPU"}
        observed = words.get(driver.state, "driver unusable")
        reason = f" ({driver.reason})" if driver.reason else ""
        return Finding(
            name,
            "refuse",
            f"{observed}{reason}, {plural(expected, 'GPU')} expected",
            advice="check whether nvidia-smi works and, in a container, whether it has access "
            "to the GPUs",
        )
    versions = driver.versions
    observed = f"{versions.driver}, CUDA {versions.cuda}" if versions else "works"
    return Finding(name, "ok", observed)


def check_devices(context: PreflightContext) -> Finding | None:
    """Refuses if a GPU is missing or lost."""
    if (gpu := _usable(context)) is None:
        return None
    found, lost = len(gpu.driver.gpus), gpu.driver.lost
    observed = f"{found} of {plural(gpu.expected, 'GPU')}"
    if found >= gpu.expected and not lost:
        return Finding("gpus", "ok", observed)
    return Finding(
        "gpus",
        "refuse",
        observed,
        tuple(f"{_name(key)} does not respond: it has fallen off the bus" for key in lost),
        "reset or reboot; if it stays missing, have it inspected",
    )


def check_running(context: PreflightContext) -> Finding | None:
    """Refuses if the run that is to start is running already."""
    gpu = context.gpu
    if gpu is None or not context.config.runs:
        return None
    ours = [(key, process) for key, process in gpu.running if context.run in (None, key.run)]
    if not ours:
        return Finding("run", "ok", "no worker of the run is running")
    return Finding(
        "run",
        "refuse",
        f"already running: {_processes(len(ours))}",
        tuple(
            f"{key.run}/{key.worker}: pid {process.pid}, {process.name}" for key, process in ours
        ),
        "stop it first, or leave it running",
    )


def check_holders(context: PreflightContext) -> Finding | None:
    """Refuses if processes that belong to no worker hold a GPU."""
    if context.gpu is None or (context.gpu.driver.state == "absent" and not context.gpu.expected):
        return None
    survey = context.gpu.survey
    details = [describe_holder(holder, context.now) for holder in (*survey.orphans, *survey.in_use)]
    if details and context.config.runs:
        return Finding(
            "gpu holders",
            "refuse",
            f"{_processes(len(details))} of no worker: leftovers of an earlier run, or an "
            "unrelated program",
            tuple(details),
            "trainwarden clean-gpu shows which are leftovers and why; list a process that may hold "
            "the GPU under gpu.protected",
        )
    uncertainties = list(_uncertainties(context, survey))
    if uncertainties or details:
        if details:  # without a configured run, no process counts as unowned
            uncertainties.insert(
                0, f"{_processes(len(details))}: no run is configured that could own them"
            )
        return Finding("gpu holders", "warn", uncertainties[0], (*details, *uncertainties[1:]))
    looking = tuple(describe_holder(holder, context.now) for holder in survey.observers)
    return Finding("gpu holders", "ok", "no unexpected process holds a GPU", looking)


def check_compute_mode(context: PreflightContext) -> Finding | None:
    """Refuses a compute mode that excludes the run; its errors look like leftovers."""
    if (gpu := _usable(context)) is None:
        return None
    modes = {one.key: one.compute_mode for one in gpu.driver.gpus if one.compute_mode is not None}
    shared = context.config.gpu.shared
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
        'processes will fail with "busy or unavailable"; terminating others does not help',
        tuple(f"{_name(key)} is in mode {mode}" for key, mode in bad.items()),
        f"nvidia-smi -i {','.join(key.gpu for key in bad)} -c DEFAULT; or set gpu.shared: "
        "false if each GPU is meant for one process",
    )


def check_memory(context: PreflightContext) -> Finding | None:
    """Refuses if less than the requested memory is free; warns if much is in use."""
    if (gpu := _usable(context)) is None:
        return None
    wanted = context.memory_free
    details, short = [], False
    for one in gpu.driver.gpus:
        if one.memory is None:
            continue
        if wanted is not None and one.memory.free < wanted:
            short = True
            details.append(
                f"{_name(one.key)} has {format_size(one.memory.free)} free of "
                f"{format_size(wanted)} requested"
            )
        elif one.memory.used > _MEMORY_IN_USE * one.memory.total:
            whose = _accounted_memory(one, gpu.survey)
            details.append(f"{_name(one.key)}: {format_size(one.memory.used)} in use{whose}")
    if not details:
        free = [one.memory.free for one in gpu.driver.gpus if one.memory is not None]
        return Finding(
            "gpu memory", "ok", f"at least {format_size(min(free))} free" if free else "not known"
        )
    return Finding(
        "gpu memory",
        "refuse" if short else "warn",
        "too little is free" if short else "some memory is in use already",
        tuple(details),
        "find the process that holds it; memory without a visible process is held outside this "
        "container or by a process that no longer exists: then reset the GPU or restart the "
        "machine",
    )


def check_health(context: PreflightContext) -> Finding | None:
    """Warns about damaged memory."""
    if (gpu := _usable(context)) is None:
        return None
    troubles = [
        f"{_name(one.key)}: {problem}"
        for one in gpu.driver.gpus
        for problem in _hardware_problems(one)
    ]
    if not troubles:
        return Finding("gpu health", "ok", "no uncorrected memory errors, no pending row remaps")
    return Finding(
        "gpu health",
        "warn",
        "the memory of a GPU is damaged",
        tuple(troubles),
        "reset the GPU; replace it if the errors return",
    )


def _usable(context: PreflightContext) -> GpuSnapshot | None:
    return context.gpu if context.gpu is not None and context.gpu.driver.state == "ok" else None


def _name(key: GpuKey) -> str:
    return f"GPU {key.gpu} ({key.uuid})" if key.uuid else f"GPU {key.gpu}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _uncertainties(context: PreflightContext, survey: Survey) -> Iterator[str]:
    unmapped = sum(survey.unmapped.values())
    if unmapped:
        yield f"{_processes(unmapped)} on the GPUs not visible here: ended, or in a container"
    if survey.unreadable:
        yield f"{_processes(survey.unreadable)} not readable: run this as root to be sure"
    others = {
        f"{holder.worker.run}/{holder.worker.worker}"
        for holder in survey.holders
        if holder.worker is not None and context.run not in (None, holder.worker.run)
    }
    if others:
        yield f"other runs use the GPUs: {', '.join(sorted(others))}"


def _accounted_memory(gpu: GpuReading, survey: Survey) -> str:
    known = [holder for holder in survey.holders if gpu.key in holder.gpus]
    if known:
        return f", held by pid {', '.join(str(holder.process.pid) for holder in known)}"
    return ", held by no visible process"


def _hardware_problems(gpu: GpuReading) -> Iterator[str]:
    uncorrected = gpu.ecc_errors.get(("uncorrected", "volatile"), 0)
    if uncorrected:
        yield f"{plural(uncorrected, 'uncorrected memory error')} since the driver was loaded"
    if gpu.remapping is not None and gpu.remapping.failed:
        yield "a bad row could not be remapped: no spare row is left"
    if gpu.remapping is not None and gpu.remapping.pending:
        yield "bad rows will be remapped at the next reset"
    if gpu.retired_pages_pending:
        yield "bad pages will be retired at the next reset"
