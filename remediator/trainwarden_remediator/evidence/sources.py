"""The sources of evidence: the process table, logs, memory and GPUs of the host.

Every source is a function that may block forever, so each runs in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwarden_exporter.config import announcements_folder
from trainwarden_exporter.frameworks.error_lines import last_lines
from trainwarden_exporter.gpu.holders import describe_holder
from trainwarden_exporter.gpu.snapshot import take_gpu_snapshot
from trainwarden_exporter.host.cgroup_memory import find_memory_cgroup, read_cgroup_usage
from trainwarden_exporter.host.config import CGROUP_ROOT, HostConfig
from trainwarden_exporter.host.memory import read_available_memory
from trainwarden_exporter.logs.file_listing import find_log_files
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.processes.accounts import RunAccounts
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.processes.exit_status import shell_code
from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Identity,
    Process,
    read_command_line,
    read_owner,
    read_processes,
    read_resident_bytes,
    read_uid,
)
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.run_specs import log_specs
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.runtime.redaction import redact, redact_command
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.evidence.log_tail import LINES, read_tail, truncate
from trainwarden_remediator.evidence.mappings import read_mappings
from trainwarden_remediator.evidence.stacks import read_run_stacks
from trainwarden_remediator.evidence.triggers import EvidenceTrigger
from trainwarden_remediator.journal.event_text import printable
from trainwarden_remediator.journal.evidence_text import fault_facts

Source = Callable[[], Any]

OF_HOST = frozenset({"memory", "gpus"})
"""The sources that answer alike whatever the target is."""

OTHER_LOG_LINES = 15
"""The number of lines to keep of the run's logs that the target does not write."""

MAX_LOGS = 8

MAX_HOLDERS = 20


def sources(trigger: EvidenceTrigger, setup: Setup) -> Mapping[str, Source]:
    """Returns the sources to query, by name."""
    found: dict[str, Source] = {
        "processes": partial(read_process_table, trigger.key, trigger.processes, setup.selectors),
        "memory": partial(read_memory, setup.exporter_config.host),
        "gpus": partial(read_gpus, setup),
    }
    if (folder := announcements_folder(setup.exporter_config)) is not None:
        found["announced"] = partial(read_announced, folder, trigger.key.run or trigger.run)
    if (run := setup.run_config(trigger.key.run or trigger.run)) is not None:
        found["stacks"] = partial(read_run_stacks, run, setup.selectors, setup.exporter_config.host)
    if trigger.processes:
        found["mappings"] = partial(read_mappings, trigger.processes)
    for name, source in islice(_logs(trigger, setup), MAX_LOGS):
        found.setdefault(f"log {name}", source)
    return found


def read_announced(folder: Path, run: str) -> Mapping[str, Any]:
    """Returns what the commands of `run` announce, by worker: the last process, and its end.

    Times are Unix seconds. `began_at`: when an operator started the command.
    """
    found = {}
    announced = read_announcements(folder, time.time())
    for key, worker in announced.workers.items():
        one = worker.announcement
        if key.run == run:
            status = one.exits[-1][2] if one.failure else None
            found["/".join(key)] = {
                "began_at": one.announced_at,
                "started_at": one.started_at,
                "ended_at": one.ended_at,
                "exit_code": None if status is None else shell_code(status),
                "start_command": announced.start_command(key),
            }
    return found


def read_memory(config: HostConfig) -> Mapping[str, Any]:
    """Returns total, available and floor of the memory, and the cgroup's usage, in bytes.

    Raises CollectError.
    """
    total, available, floor = read_available_memory(config)
    facts = {"total": total, "available": available, "floor": floor}
    cgroup = find_memory_cgroup(CGROUP_ROOT, config.cgroup)
    if cgroup is None:
        return facts
    if (usage := read_cgroup_usage(cgroup)) is not None:
        facts |= {"cgroup_limit": usage.limit_bytes, "cgroup_working_set": usage.working_set_bytes}
    return facts


def read_gpus(setup: Setup) -> Mapping[str, Any]:
    """Returns the state of the driver and the GPU holders. Blocks while the driver does."""
    view = take_gpu_snapshot(setup.exporter_config.gpu, setup.exporter_config.runs)
    now = time.time()
    return {
        "driver": view.driver.state,
        "reason": view.driver.reason,
        "devices": [
            {
                "gpu": gpu.key.gpu,
                "name": gpu.name,
                "used": gpu.memory.used if gpu.memory else None,
                "total": gpu.memory.total if gpu.memory else None,
            }
            for gpu in view.driver.gpus
        ],
        "lost": [key.gpu for key in view.driver.lost],
        "holders": [
            {
                "worker": "/".join(holder.worker) if holder.worker else "",
                "orphan": holder.orphan,
                "is": truncate(redact(describe_holder(holder, now))),
            }
            for holder in view.survey.holders[:MAX_HOLDERS]
        ],
    }


def read_log_facts(key: WorkerKey, setup: Setup) -> Mapping[str, str]:
    """Returns the path of the log of a worker or run, and its last error or else its last lines.

    Those of another worker only where the worker has none. Empty without a log. Blocks for as long
    as the disk does.
    """
    trigger = EvidenceTrigger("hold", 0, key, key.run)
    found: list[Mapping[str, Any]] = []
    for only_own in (True, False):
        for _, source in islice(_logs(trigger, setup, only_own=only_own), MAX_LOGS):
            with suppress(OSError):
                found += [one for one in (source(),) if one is not None]
        if found:
            break
    fault = fault_facts({"logs": found})
    if not fault.log:
        return {}
    if fault.error:
        return {"log": fault.log, "last_error": fault.error}
    lines = next(one["lines"] for one in found if one["path"] == fault.log)
    return {"log": fault.log, "last_lines": last_lines(lines)}


def _logs(
    trigger: EvidenceTrigger, setup: Setup, *, only_own: bool = False
) -> Iterator[tuple[str, Source]]:
    """Yields the target's own logs first, then the other logs of its run."""
    target = setup.config.target(trigger.key)
    process = None if target is None else target.process
    if process is not None and (kept := process.log) is not None:
        name = f"output of {trigger.key.worker}"
        yield name, partial(read_tail, name, str(kept))
    run = setup.run_config(trigger.key.run or trigger.run)
    specs = [] if run is None else list(log_specs(run))
    own = [spec for spec in specs if trigger.key.worker in ("", spec.worker)]
    others = [] if only_own else [spec for spec in specs if spec not in own]
    for spec in (*own, *others):
        lines = LINES if spec in own else OTHER_LOG_LINES
        yield spec.name, partial(_read_newest, spec, lines)


def _read_newest(spec: LogSpec, lines: int) -> Mapping[str, Any] | None:
    with reading_for(spec.account):
        tails = (read_tail(spec.name, path, lines) for path, _ in find_log_files(spec))
        return next((tail for tail in tails if tail is not None), None)


LARGEST_PROCESSES = 10
"""The number of processes to list of the whole host."""

MAX_TREE_PROCESSES = 40
"""The number of processes to list of the target."""

COMMAND_LENGTH = 240


def read_process_table(
    key: WorkerKey, intended: Collection[Identity], selectors: Mapping[WorkerKey, Selector]
) -> Mapping[str, Any]:
    """Returns the processes of worker `key`, the `intended` ones and the largest of the host.

    Of a process that is neither of a worker nor of an account of one, the command line is left out:
    it is no matter of the run. Raises CollectError. Reading a process can block for as long as the
    kernel holds it.
    """
    processes = read_processes()
    trees = Matcher(selectors).assign(processes)
    tree = trees.get(key)
    members = {} if tree is None else {one.pid: one for one in tree.members}
    for identity in intended:
        process = processes.get(identity.pid)
        if process is not None and process.identity == identity:
            members[process.pid] = process
    largest = sorted(processes.values(), key=lambda one: one.resident_bytes, reverse=True)
    workers = {one.pid for each in trees.values() for one in each.members}
    accounts = RunAccounts([one.user for one in selectors.values()])
    accounts.add_workers(one for each in trees.values() for one in each.members)
    foreign = {
        one.pid: read_owner(one.pid)
        for one in largest[:LARGEST_PROCESSES]
        if one.pid not in workers | members.keys() and read_uid(one.pid) not in accounts
    }
    own = sorted(members.values(), key=lambda one: one.resident_bytes, reverse=True)
    return {
        "of_target": len(own),
        "on_box": len(processes),
        "tree": _describe(own[:MAX_TREE_PROCESSES]),
        "largest": _describe(largest[:LARGEST_PROCESSES], foreign),
    }


def _describe(
    processes: Iterable[Process], foreign: Mapping[int, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Describes processes; of the `foreign` ones their program and account."""
    found = []
    for process in processes:
        # A process can set a command line of any length.
        arguments = (read_command_line(process.pid) or ())[:64]
        shown = redact_command(argument[:COMMAND_LENGTH] for argument in arguments)
        command = shown if arguments else f"[{process.name}]"
        if process.pid in foreign:
            command = f"[{process.name}] of {foreign[process.pid]}"
        exact = read_resident_bytes(process.pid)
        found.append(
            {
                "pid": process.pid,
                "parent": process.parent_pid,
                "started": start_timestamp(process.identity),
                "state": process.state,
                "bytes": process.resident_bytes if exact is None else exact,
                "command": truncate(printable(command), COMMAND_LENGTH),
            }
        )
    return found
