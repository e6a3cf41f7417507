"""Reads all that a folder shows of a run: logs, checkpoints, recovery record, system logs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trainwarden.autopsy import host
from trainwarden.autopsy import patterns as autopsy_patterns
from trainwarden.autopsy.announced import AnnouncedWorker, as_it_ended, split_runs
from trainwarden.autopsy.files import (
    MAX_TOTAL_BYTES,
    FolderFiles,
    LogFile,
    add_log,
    find_files,
    read_sample,
)
from trainwarden.autopsy.journals import read_actions
from trainwarden.autopsy.log_formats import framework_of_lines, is_copy, patterns_of, role_of
from trainwarden.autopsy.material import CheckpointFinding, Material, RolloutFinding
from trainwarden.autopsy.model import LogReading
from trainwarden.autopsy.own_files import own_files, own_folder
from trainwarden.autopsy.reading import LogReader
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner, CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.discovery.host_scan import DiscoveredLog, RunFolder, scan_folder
from trainwarden_exporter.discovery.log_patterns import propose_patterns
from trainwarden_exporter.discovery.proposal import Proposal, ProposedLog, ProposedRun
from trainwarden_exporter.discovery.yaml_writer import render
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.rollouts.scanner import RolloutScanner
from trainwarden_exporter.run_specs import checkpoint_specs, rollout_specs
from trainwarden_exporter.step_dirs.listing import MAX_ENTRIES
from trainwarden_exporter.step_dirs.locations import InstanceFinder

MAX_SCANS = 8
"""Scans of a folder of checkpoints, each of a bounded number of entries."""


def gather(
    folder: Path,
    *,
    now: float | None = None,
    read_boot_time: Callable[[], float | None] = host.read_boot_time,
    read_kernel_log: Callable[[], host.KernelLog | None] = host.read_kernel_log,
    announced_in: Callable[[Path], tuple[AnnouncedWorker, ...]] = lambda _: (),
    run_name: str = "",
    stack_journals: Sequence[Path] = (),
) -> Material:
    """Reads `folder`, or one log, of `run_name` if that is known. Raises OSError if it cannot."""
    folder = folder.absolute()
    announced, others = split_runs(announced_in(folder))
    saved = next((one.checkpoints for one in announced if one.checkpoints is not None), None)
    saved = saved if saved is not None and saved.is_dir() else None
    is_lost = bool(announced) and not folder.exists()  # what was never started has no log
    files = FolderFiles() if is_lost else own_files(find_files(folder), saved, others)
    unread = list(files.unread)
    for one in announced:
        try:
            files = add_log(files, one.log)
        except OSError as error:
            unread.append(f"{one.log}: {error.strerror or error}")
    samples: dict[str, bytes] = {}
    binary = 0
    for log in files.logs:
        try:
            sample = read_sample(log)
        except OSError as error:
            unread.append(f"{log.name}: {error.strerror or error}")
            continue
        if sample is None:
            binary += 1
            continue
        samples[log.name] = sample
    files = replace(files, others=files.others + binary)
    run_folder = _own_folder(folder, samples, saved, others)
    framework = get_framework(run_folder.framework)
    run, text = _proposed_config(run_folder)
    logs = tuple(
        _dated(one, announced) for one in _read_logs(files.logs, samples, framework, unread)
    )
    announced = tuple(as_it_ended(one, logs) for one in announced)
    kernel = read_kernel_log()
    if kernel is not None:
        logs += _of_this_host(kernel, logs)
    names = {one.run for one in announced} or {run_name} - {""}
    since = min((one.announced_at for one in announced), default=0.0)
    actions = read_actions(folder, stack_journals, names, since, unread)
    ended = bool(announced) and all(one.ended and not one.alive for one in announced)
    checkpoints, rollouts = _scan_steps(text, unread, after_end if ended else time.time)
    return Material(
        folder,
        time.time() if now is None else now,
        files,
        framework,
        text,
        run,
        logs,
        checkpoints,
        rollouts,
        tuple(unread),
        read_boot_time(),
        announced,
        others,
        actions,
    )


def _own_folder(
    folder: Path, samples: dict[str, bytes], saved: Path | None, others: Sequence[AnnouncedWorker]
) -> RunFolder:
    """Finds the framework and the checkpoints of the run: those in `saved`, where it is known."""
    if saved is not None and (others or not saved.is_relative_to(folder.resolve())):
        return _scan(saved, samples)
    return own_folder(_scan(folder, samples), saved, others)


def _scan(folder: Path, samples: dict[str, bytes]) -> RunFolder:
    """Finds the framework by its files, else by its lines."""
    run_folder = scan_folder(folder) if folder.is_dir() else RunFolder(folder.parent)
    if run_folder.framework != "generic":
        return run_folder
    text = b"\n".join(samples.values())
    found = framework_of_lines(text)
    if found is None:
        logs = run_folder.logs
        if not folder.is_dir():
            sample = next(iter(samples.values()), b"").decode(errors="replace")
            logs = (DiscoveredLog(folder, propose_patterns(sample)),)
        return replace(run_folder, logs=logs)
    return replace(run_folder, framework=found.name, logs=())


def _proposed_config(run_folder: RunFolder) -> tuple[str, str]:
    logs = tuple(
        ProposedLog(name, log)
        for name, log in _named_logs(run_folder.logs)
        if run_folder.framework == "generic"
    )
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", run_folder.path.name).strip("-.") or "training"
    return name, render(Proposal((ProposedRun(name, run_folder, (), logs),)))


def _named_logs(logs: Iterable[DiscoveredLog]) -> Iterator[tuple[str, DiscoveredLog]]:
    names: set[str] = set()
    for log in logs:
        base = re.sub(r"[^A-Za-z0-9_.-]+", "-", log.path.stem).strip("-.") or "log"
        name, number = base[:80], 1
        while name in names:
            number += 1
            name = f"{base[:80]}-{number}"
        names.add(name)
        yield name, log


def _read_logs(
    files: Sequence[LogFile], samples: dict[str, bytes], framework: Framework, unread: list[str]
) -> Iterator[LogReading]:
    copies = LineDeduplicator() if any(map(is_copy, files)) else None
    left = MAX_TOTAL_BYTES
    for log in sorted(files, key=is_copy):
        if log.name not in samples:
            continue
        if left <= 0:
            unread.append(f"{log.name}: {MAX_TOTAL_BYTES >> 30} GiB were read before it")
            continue
        role = role_of(log, framework)
        shares = role in ("", "trainer") and log.source == "log"
        reader = LogReader(
            log,
            patterns_of(log, samples[log.name], framework),
            role=role,
            copies=copies if shares else None,
        )
        try:
            reading = reader.read()
        except OSError as error:
            unread.append(f"{log.name}: {error.strerror or error}")
            continue
        left -= reading.bytes_read
        if not reading.whole:
            unread.append(f"the middle of {log.name}")
        yield reading


def _dated(log: LogReading, announced: Sequence[AnnouncedWorker]) -> LogReading:
    """Dates the end of a log without times by the end that its run recorded."""
    for one in announced:
        if one.ended_at and one.wrote(log):
            return log.with_end(one.ended_at)
    return log


def after_end() -> float:
    """Returns a time at which what an ended run has written counts as settled."""
    return time.time() + _AFTER_END_SECONDS


def _scan_steps(
    text: str, unread: list[str], clock: Callable[[], float]
) -> tuple[tuple[CheckpointFinding, ...], tuple[RolloutFinding, ...]]:
    """Scans the folders of checkpoints and rollouts by the proposed configuration."""
    try:
        config = loader.parse(text, Path("exporter.yml"), Config, environment={})
    except ConfigError as error:
        # the proposal is made of names that anybody may have chosen
        unread.append(f"checkpoints and rollouts: {error.problems[0].message}")
        return (), ()
    checkpoints: list[CheckpointFinding] = []
    rollouts: list[RolloutFinding] = []
    for run in config.runs:
        for spec in checkpoint_specs(run):
            try:
                snapshot = _scan_checkpoints(spec, clock)
            except OSError as error:
                unread.append(f"checkpoints {spec.layout.name}: {error.strerror}")
                continue
            if snapshot.folders or snapshot.recovery is not None:
                checkpoints.append(CheckpointFinding(spec, snapshot))
        for rollout in rollout_specs(run):
            if rollout.layout is None:
                continue
            finder = InstanceFinder(rollout.location)
            try:
                found = RolloutScanner(finder, rollout.layout, ranks=rollout.ranks)()
            except OSError as error:
                unread.append(f"rollouts {rollout.name}: {error.strerror}")
                continue
            if found.folders:
                rollouts.append(RolloutFinding(rollout, found))
    return tuple(checkpoints), tuple(rollouts)


def _scan_checkpoints(spec: CheckpointSpec, clock: Callable[[], float]) -> CheckpointSnapshot:
    """Scans until all entries are examined, or often enough for thousands of them."""
    scanner = CheckpointScanner(spec, now=clock, listed=MAX_ENTRIES)
    snapshot = scanner()
    for _ in range(MAX_SCANS):
        if not snapshot.result.unexamined_count:
            break
        snapshot = scanner()
    return snapshot


_AFTER_END_SECONDS = 900.0


def _of_this_host(kernel: host.KernelLog, logs: Sequence[LogReading]) -> tuple[LogReading, ...]:
    """Returns the kernel's lines of this host from the time of the run."""
    times = [at for log in logs for at in (log.first_at, log.last_at) if at is not None]
    if not times:
        return ()
    patterns = (*COMMON_ERROR_PATTERNS, *autopsy_patterns.SYSTEM)
    found = host.tally_kernel_log(kernel, patterns, min(times), max(times) + _AFTER_END_SECONDS)
    return () if found is None else (found,)
