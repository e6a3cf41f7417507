from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from trainwarden_exporter.collectors.logs import LogsCollector
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.logs.counters import ErrorLine
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import log_specs
from trainwarden_exporter.scrape.validation import validated

Samples = dict[tuple[str, ...], float]

REFUSED = "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")\n"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    one = Logs(tmp_path)
    yield one
    one.close()


class Logs:
    """The logs of a run in a folder, and the collectors that followed one another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.events: list[LineEvent] = []
        self.collectors: list[LogsCollector] = []

    def start(self, logs: str, *, framework: str = "generic", **options: Any) -> LogsCollector:
        text = f"name: grpo\nframework: {framework}\npath: {self.folder}\nlogs:\n{logs}"
        run = loader.parse(text, self.folder / "x.yml", RunConfig, environment={})
        options = {"state_folder": self.state, "interval": 0.01, **options}
        collector = LogsCollector(log_specs(run), sinks=[self.events.append], **options)
        self.collectors.append(collector)
        return collector

    def samples(self, collector: LogsCollector | None = None) -> Samples:
        """By metric without its prefix, and labels but the run."""
        one = collector or self.collectors[-1]
        return {
            (family.name.removeprefix("trainwarden_log_"), *list(sample.labels.values())[1:]): value
            for family in validated(one.collect(), one.metrics)
            for sample in family.samples
            for value in [sample.value]
        }

    def until(self, condition: Callable[[Samples], bool]) -> Samples:
        deadline = time.monotonic() + 60
        while True:
            samples = self.samples()
            if condition(samples):
                return samples
            assert time.monotonic() < deadline, samples
            time.sleep(0.01)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def close(self) -> None:
        for collector in self.collectors:
            collector.close()


ONE = (
    "- {name: trainer, files: [a.log], role: trainer, silence_limit: 10m, patterns: ["
    "{name: brake, regex: 'emergency brake', error: true}, "
    r"{name: step, regex: 'step (?P<step>\d+) loss (?P<loss>\S+)', resets: brake}]}"
)


def test_without_logs_there_is_nothing_to_see() -> None:
    with pytest.raises(NoData):
        list(LogsCollector([]).collect())


def test_a_log_that_is_not_there_yet_counts_from_zero(logs: Logs) -> None:
    before = time.time()
    logs.start(ONE)
    samples = logs.samples()
    assert samples["info", "trainer", "trainer", ""] == 1
    assert samples["files", "trainer"] == 0
    assert samples["matches", "trainer", "brake"] == 0
    assert samples["matches", "trainer", "gpu_out_of_memory"] == 0
    assert samples["error_lines", "trainer"] == 0
    assert samples["match_streak", "trainer", "brake"] == 0
    assert samples["silence_limit_seconds", "trainer"] == 600
    assert before <= samples["seen_timestamp_seconds", "trainer"] <= time.time()
    assert not any(key[0].startswith(("last", "value")) for key in samples)
    assert ("matches", "trainer", "step") not in samples


def test_what_stands_in_a_log_is_shown(logs: Logs) -> None:
    before = time.time()
    logs.write("a.log", "older\n")
    logs.start(ONE)
    logs.samples()
    logs.write(
        "a.log",
        "step 5 loss nan\n"
        + "emergency brake\n" * 12
        + "RuntimeError: CUDA error: out of memory\n",
    )
    samples = logs.until(lambda now: now["matches", "trainer", "brake"] == 12)
    assert samples["matches", "trainer", "step"] == 1
    assert samples["matches", "trainer", "gpu_out_of_memory"] == 1
    assert samples["error_lines", "trainer"] == 13
    assert samples["match_streak", "trainer", "brake"] == 12
    assert math.isnan(samples["value", "trainer", "loss"])
    assert samples["value_finite", "trainer", "loss"] == 0
    size = (logs.folder / "a.log").stat().st_size
    assert samples["size_bytes", "trainer"] == size
    assert samples["read_bytes", "trainer"] == size
    written = samples["last_write_timestamp_seconds", "trainer"]
    matched = samples["last_match_timestamp_seconds", "trainer", "brake"]
    # the kernel stamps files by a coarser clock
    assert before - 1 <= written <= time.time()
    assert before <= matched <= time.time()
    assert {artifact.line for artifact in artifacts(logs)} == {
        "emergency brake",
        "RuntimeError: CUDA error: out of memory",
    }
    logs.write("a.log", "step 6 loss 0.5\n")
    samples = logs.until(lambda now: now["match_streak", "trainer", "brake"] == 0)
    assert samples["value_finite", "trainer", "loss"] == 1
    assert [event.groups["step"] for event in logs.events if event.pattern == "step"] == ["5", "6"]


def artifacts(logs: Logs) -> Iterable[ErrorLine]:
    return [
        artifact for artifact in logs.collectors[-1].artifacts if isinstance(artifact, ErrorLine)
    ]


def test_sixty_four_errors_in_two_files_are_sixty_four(logs: Logs) -> None:
    logs.start("  []", framework="areal")
    logs.samples()
    logs.write("trainer.log", REFUSED * 64)
    logs.write("wandb/run-20261112_050000-abc/files/output.log", REFUSED * 64)
    # Files that come are looked for every few seconds.
    for follower, _ in logs.collectors[-1]._logs.values():
        follower._files._listing._due = 0
    samples = logs.until(lambda now: now["read_bytes", "wandb"] > 0 and now["files", "trainer"] > 0)
    samples = logs.until(lambda now: now["read_bytes", "trainer"] == now["read_bytes", "wandb"])
    for metric in ("matches", "error_lines"):
        counted = [
            value
            for (name, _, *pattern), value in samples.items()
            if name == metric and pattern in ([], ["connection_refused"])
        ]
        assert sum(counted) == 64
    assert sum(artifact.count for artifact in artifacts(logs)) == 64


def test_counts_go_on_after_a_restart(logs: Logs) -> None:
    collector = logs.start(ONE)
    logs.samples()
    logs.write("a.log", "emergency brake\n" * 3)
    ((follower, _),) = collector._logs.values()
    follower._files._listing._due = 0
    logs.until(lambda now: now["matches", "trainer", "brake"] == 3)
    logs.close()
    logs.write("a.log", "emergency brake\n" * 2)
    logs.start(ONE)
    assert logs.samples()["matches", "trainer", "brake"] == 5


def test_a_reload_keeps_what_was_not_changed_and_goes_on_with_what_was(logs: Logs) -> None:
    two = ONE + "\n- {name: other, files: [b.log]}"
    for name in ("a.log", "b.log"):
        logs.write(name, "older\n")
    old = logs.start(two, state_folder=None)
    logs.samples()
    for name in ("a.log", "b.log"):
        logs.write(name, "emergency brake, Connection refused\n")
    logs.until(lambda now: now["error_lines", "trainer"] == 1 == now["error_lines", "other"])
    changed = two.replace("b.log]", "b.log], silence_limit: 5m")
    new = logs.start(changed, state_folder=None)
    new.take_over_from(old)
    samples = logs.samples()
    assert samples["silence_limit_seconds", "other"] == 300
    assert samples["error_lines", "other"] == 1
    assert samples["error_lines", "trainer"] == 1
    before, after = (
        {log.follower.spec.name: log for log in one._logs.values()} for one in (old, new)
    )
    assert before["trainer"] is after["trainer"]
    assert before["other"] is not after["other"]
    logs.write("b.log", "Connection refused\n")
    logs.until(lambda now: now["error_lines", "other"] == 2)


def test_a_log_that_is_not_configured_any_more_is_followed_no_longer(logs: Logs) -> None:
    logs.write("a.log", "")
    old = logs.start(ONE)
    logs.samples()
    ((follower, poller),) = old._logs.values()
    new = logs.start("- {name: other, files: [b.log]}")
    new.take_over_from(old)
    assert {key[1] for key in logs.samples()} == {"other"}
    assert poller._closing.is_set()
    assert all(not one.is_open for one in follower._files)


def test_a_log_that_hangs_keeps_no_other_from_being_read(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.log", "b.log"):
        logs.write(name, "older\n")
    logs.start(ONE + "\n- {name: other, files: [b.log]}")
    logs.samples()
    hung, go_on = (logs.folder / "b.log").stat().st_ino, Event()
    read = os.pread

    def hang(descriptor: int, *arguments: int) -> bytes:
        if os.fstat(descriptor).st_ino == hung:
            go_on.wait(120)
        return read(descriptor, *arguments)

    monkeypatch.setattr(os, "pread", hang)
    logs.write("b.log", "Connection refused\n")
    time.sleep(0.05)
    for number in range(1, 4):
        logs.write("a.log", "Connection refused\n")
        samples = logs.until(lambda now, n=number: now["error_lines", "trainer"] == n)  # type: ignore[misc]
        assert samples["error_lines", "other"] == 0
    stuck = samples["seen_timestamp_seconds", "other"]
    assert logs.samples()["seen_timestamp_seconds", "other"] == stuck
    go_on.set()
    logs.until(lambda now: now["error_lines", "other"] == 1)


def test_sixty_four_files_that_are_rotated_come_to_exact_counts(logs: Logs) -> None:
    """A short form of bench/log_following.py: 64 MB in all."""
    files, rounds, hits = 64, 4, 60
    for number in range(files):
        logs.write(f"rank{number}.log", "")
    logs.start("- {name: many, files: ['*.log'], patterns: [{name: hit, regex: 'HIT'}]}")
    logs.samples()
    filler = (
        "(AReaL) 20261121-10:00:00.000 Executor INFO: batch queued, tokens padded, cache warm\n"
    )
    expected = 0
    for turn in range(rounds):
        for number in range(files):
            path = logs.folder / f"rank{number}.log"
            for part in range(2):
                # Each line is another one, as it would be by its time.
                logs.write(
                    path.name,
                    "".join(
                        f"HIT {turn} {number} {part} {hit}\n{filler * 48}"
                        for hit in range(hits // 2)
                    ),
                )
                rotate = (None, _rename, _copy_and_truncate)[number % 3] if turn else None
                if part == 0 and rotate is not None:
                    rotate(path, turn)
        expected += files * hits
        samples = logs.until(lambda now: now.get(HITS, 0) == expected)  # noqa: B023 - called at once
    assert samples["files", "many"] == files
    for follower, _ in logs.collectors[-1]._logs.values():
        follower.poll()
    assert logs.samples()[HITS] == expected


HITS = ("matches", "many", "hit")


def _rename(path: Path, turn: int) -> None:
    path.rename(path.with_name(f"{path.name}.{turn}"))


def _copy_and_truncate(path: Path, turn: int) -> None:
    shutil.copy(path, path.with_name(f"{path.name}.{turn}"))
    os.truncate(path, 0)
