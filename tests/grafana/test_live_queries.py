"""Every query of every board, asked of the Prometheus of a demo run.

A query without an answer has to name its reason, and the reason has to hold in the demo.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import preview
from boards import BOARDS
from boards.board import Board
from demo_reasons import OF_THE_DEMO
from previewing.asking import SCRAPE_INTERVAL, Prometheus, Window, answer, choose_all, filled
from running import Up, up

PATIENCE = 200


def oom_kills() -> int:
    """How many processes of this host the kernel has killed for memory, in any cgroup."""
    lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


OOM_KILLS_BEFORE = oom_kills()
"""Seconds until all is seen: a leak must be healed, three checkpoints be saved, and what is
recorded once a minute be recorded twice."""
BEFORE = 60
"""Seconds before the start of the stack that a window begins."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


@dataclass(frozen=True)
class Asked:
    """A query of a board, and why it may not be answered."""

    board: str
    panel: str
    text: str
    empty_when: str


class Demo:
    """A demo run, and the boards that look at it."""

    def __init__(self, run: Up) -> None:
        self.run = run
        self.prometheus = Prometheus(run.url("Prometheus"))
        self.started = time.time()

    @property
    def window(self) -> Window:
        return Window(self.started - BEFORE, time.time())

    def is_up(self, worker: str) -> bool:
        query = f'trainwarden_worker_processes{{worker="{worker}"}} > 0'
        return bool(self.prometheus.at(query, time.time()))

    def unanswered(self, *, first: tuple[str, ...] = ()) -> list[Asked]:
        """What gets no answer; of the variables in `first` only the first option is chosen."""
        return [
            asked for board in BOARDS for asked, found in self._asked(board, first) if not found
        ]

    def _asked(self, board: Board, first: tuple[str, ...]) -> Iterator[tuple[Asked, object]]:
        model, window = board.model(BOARDS), self.window
        chosen = choose_all(model, self.prometheus, window, first)
        for variable in board.variables:
            asked = Asked(board.uid, "", f"${variable.name}", variable.empty_when)
            yield asked, chosen.options[variable.name]
        targets = [
            (panel, target) for panel in model["panels"] for target in panel.get("targets", ())
        ]
        queries = [query for panel in board.panels for query in panel.queries]
        for (panel, target), query in zip(targets, queries, strict=True):
            assert target["expr"] == query.promql
            asked = Asked(board.uid, panel["title"], query.text, query.empty_when)
            yield asked, answer(target, self.prometheus, window.of(panel), chosen.values)
        for annotation, mark in zip(model["annotations"]["list"], board.marks, strict=True):
            asked = Asked(board.uid, mark.name, mark.text, mark.empty_when)
            expression = filled(annotation["expr"], chosen.values)
            yield asked, self.prometheus.over(expression, window)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with up(tmp_path_factory.mktemp("boards") / "run", CONFIG="", MODE="") as running:
        running.wait_until_up()
        seen = Demo(running)
        # A worker that no scrape has seen is not healed.
        running.wait_until(lambda: seen.is_up("rollout-0"), PATIENCE)
        # Sooner than the leak. The trainer goes on: there is another one to feed it.
        (running.folder / "demo" / "faults" / "rollout-0").write_text("die\n")
        yield seen


def test_every_query_of_every_panel_variable_and_mark_is_answered(demo: Demo) -> None:
    missing: list[Asked] = []

    def all_there() -> bool:
        missing[:] = [asked for asked in demo.unanswered() if asked.empty_when not in OF_THE_DEMO]
        return not missing

    deadline = time.monotonic() + PATIENCE
    while not all_there():
        if time.monotonic() > deadline:
            pytest.fail("\n".join(f"{a.board}: {a.panel}: {a.text}" for a in missing))
        time.sleep(SCRAPE_INTERVAL)


def test_one_box_and_one_run_are_chosen_as_well_as_all(demo: Demo) -> None:
    unanswered = demo.unanswered(first=("instance", "run"))
    missing = [asked for asked in unanswered if asked.empty_when not in OF_THE_DEMO]
    assert missing == []


def test_the_word_is_all_well_once_the_alerts_are_over(demo: Demo) -> None:
    (panel,) = [panel for panel in BOARDS[0].panels if panel.title == "Verdict"]
    values = {"instance": ".+", "run": ".+", "host": "127\\\\.0\\\\.0\\\\.1"}

    def verdict() -> list[float]:
        query = filled(panel.queries[0].promql, values)
        return [series.points[-1][1] for series in demo.prometheus.at(query, time.time())]

    deadline = time.monotonic() + PATIENCE
    while verdict() != [0]:
        if time.monotonic() > deadline:
            alerts = demo.prometheus.at('ALERTS{alertstate="firing"}', time.time())
            firing = {alert.labels["alertname"] for alert in alerts}
            if firing == {"TrainingOomKill", "TrainingWatchdog"} and oom_kills() > OOM_KILLS_BEFORE:
                pytest.skip("the kernel has killed a program of this host for memory")
            pytest.fail(f"still firing: {[alert.labels for alert in alerts]}\n{demo.run.text()}")
        time.sleep(1)


def test_the_boards_can_be_drawn(demo: Demo, tmp_path: Path) -> None:
    model: dict[str, Any] = BOARDS[0].model(BOARDS)
    picture = tmp_path / "run.png"
    preview.draw(model, demo.prometheus, demo.window, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300 << 10
