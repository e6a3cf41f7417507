"""The shipped rules and their tests, as read from their files, and an Alertmanager to ask."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import yaml
from tests.waiting import connected

from stack import Binaries

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
Labels = dict[str, str]
Result = subprocess.CompletedProcess[str]
Case = tuple[str, Labels, list[Labels], list[Labels]]
"""The title, the cause, the alerts that it inhibits, the alerts that it does not inhibit."""


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return PROJECT


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    """Every alerting rule, as written."""
    return [
        rule
        for file in sorted((PROJECT / "rules" / "alerts").glob("*.yml"))
        for group in yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]


@pytest.fixture(scope="session")
def recordings() -> list[dict[str, Any]]:
    """Every recording rule, as written."""
    return [
        rule
        for file in sorted((PROJECT / "rules" / "recording").glob("*.yml"))
        for group in yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]


@pytest.fixture(scope="session")
def rule_tests() -> list[dict[str, Any]]:
    """Every test of the promtool suites, as written."""
    return [
        test
        for file in sorted((PROJECT / "rules" / "tests").glob("*_test.yml"))
        for test in yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["tests"]
    ]


@pytest.fixture(scope="session")
def promtool(binaries: Binaries) -> Callable[..., Result]:
    """Runs promtool with arguments."""

    def run(*arguments: str | Path) -> Result:
        return subprocess.run(
            # The tests that run beside it measure time.
            ["nice", binaries.promtool, *arguments],
            # Collected at a limit, not at a multiple of what is in use: a third less of CPU.
            env={**os.environ, "GOGC": "off", "GOMEMLIMIT": "256MiB"},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    return run


class Running:
    """An Alertmanager of one's own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, *alerts: Labels) -> None:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - the URL is our own, http
            f"{self.url}/api/v2/alerts", body, headers
        )
        connected(lambda: urllib.request.urlopen(request, timeout=PATIENCE).close())  # noqa: S310 - as above

    def muted(self) -> dict[frozenset[tuple[str, str]], bool]:
        """Whether each alert it knows is inhibited, by its labels."""

        def ask() -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=PATIENCE) as reply:  # noqa: S310 - as above
                alerts: list[dict[str, Any]] = json.load(reply)
            return alerts

        return {
            frozenset(alert["labels"].items()): bool(alert["status"]["inhibitedBy"])
            for alert in connected(ask)
        }


def _run(binaries: Binaries, config: str, folder: Path) -> Iterator[Running]:
    """Start an Alertmanager in `folder` on a port of its choice, and end it afterwards."""
    (folder / "alertmanager.yml").write_text(config)
    process = subprocess.Popen(
        [
            binaries.alertmanager,
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
            "--cluster.listen-address=",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines: Queue[str] = Queue()
    reader = threading.Thread(target=_pump, args=(process.stderr, lines))
    reader.start()
    try:
        yield Running(_address(lines))
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


def _pump(source: Any, lines: Queue[str]) -> None:
    for line in source:
        lines.put(line)
    lines.put("")


def _address(lines: Queue[str]) -> str:
    """Where it listens, as its log says; fails with that log if it ends before."""
    log = ""
    while line := lines.get(timeout=PATIENCE):
        if (found := re.search(r'msg="Listening on" address=(\S+)', line)) is not None:
            return f"http://{found[1]}"
        log += line
    pytest.fail(f"Alertmanager ended:\n{log}")


@pytest.fixture(scope="session")
def run_alertmanager(binaries: Binaries) -> Callable[[str, Path], Iterator[Running]]:
    """Runs an Alertmanager with a configuration, in a folder, for the length of a loop over it."""
    return lambda config, folder: _run(binaries, config, folder)


@pytest.fixture(scope="session")
def alertmanager(
    run_alertmanager: Callable[[str, Path], Iterator[Running]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    # No webhook: nothing listens for it here, and refused deliveries would only fill the log.
    config = (PROJECT / "rules" / "alertmanager.yml").read_text()
    config = re.sub(r"    webhook_configs:\n(?:      .*\n)+", "", config)
    yield from run_alertmanager(config, tmp_path_factory.mktemp("alertmanager"))


def _within(world: str, labels: Labels) -> frozenset[tuple[str, str]]:
    """The labels in a world of their own: the cases share one Alertmanager."""
    own = {name: f"{world}: {labels[name]}" for name in ("run", "instance") if name in labels}
    return frozenset((labels | own).items())


@pytest.fixture(scope="session")
def assert_mutes(alertmanager: Running) -> Callable[[Sequence[Case]], None]:
    """Raises all alerts of all cases, and looks at which are muted."""

    def check(cases: Sequence[Case]) -> None:
        expected: dict[frozenset[tuple[str, str]], bool] = {}
        for what, cause, muted, spared in cases:
            expected |= {_within(what, labels): False for labels in (cause, *spared)}
            expected |= {_within(what, labels): True for labels in muted}
        alertmanager.post(*(dict(labels) for labels in expected))

        deadline = time.monotonic() + PATIENCE
        while not expected.items() <= (seen := alertmanager.muted()).items():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)  # a mute works once its source is in; there is nothing to wait on
        for what, cause, muted, spared in cases:
            for labels in muted:
                assert seen[_within(what, labels)], f"{what}: {labels} is not muted"
            for labels in (cause, *spared):
                assert not seen[_within(what, labels)], f"{what}: {labels} is muted"

    return check
