"""What the whole suite shares: the real Prometheus and Alertmanager, and a table of the nights."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable

import hypothesis
import pytest

import stack
from measuring import PAGE, PROPERTY, Measure, page, table

# runs of the account that runs the tests are none of theirs
os.environ["TRAINWARDEN_FOLDER"] = tempfile.gettempdir() + "/no-trainwarden-folder"

# what a shell starts in the background ignores SIGINT, and so would each program of a test
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a busy machine is no fault of what is tested
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="write the golden files again; review the changes afterwards",
    )
    parser.addoption(
        "--within-limits",
        action="store_true",
        help="fail what takes longer than it may; for a machine that does nothing else",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with what computes for minutes, and spreads what waits among what computes.

    The last of the end-to-end tests begins when a fifth of the rest is left, so that it ends first.
    """
    waits = {path: path.parent.name == "e2e" for path in dict.fromkeys(one.path for one in items)}
    place = {
        path: number / len(files) * (0.8 if is_waiting else 1)
        for is_waiting in (True, False)
        if (files := [path for path in waits if waits[path] is is_waiting])
        for number, path in enumerate(files)
    }
    items.sort(key=lambda item: (item.path.name != "test_rules.py", place[item.path]))


@pytest.fixture(scope="session")
def binaries() -> stack.Binaries:
    """The programs from PATH, else from the distribution's packages, unpacked once."""
    return stack.find_binaries()


@pytest.fixture
def measured(
    record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> Measure:
    """Notes how long something of a night took, for the table at the end."""

    def measure(night: int, what: str, took: float, limit: float) -> None:
        record_property(PROPERTY, (night, what, took, limit))
        if pytestconfig.getoption("within_limits"):
            assert took < limit

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [
        tuple(value)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if rows:
        terminalreporter.section("the nights, in seconds from the fault")
        for line in table(rows):
            terminalreporter.line(line)
        within = terminalreporter.config.getoption("within_limits")
        if within and (text := page(rows)) is not None:
            PAGE.write_text(text)
