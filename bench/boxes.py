"""Boxes as Prometheus sees them: the page of a real exporter with everything on, which lives on.

One server hands the page out for all of them. A page that stood still would be that of a box on
which everything hangs: alerts would be up on each, and Prometheus would spend its time on their
texts. So what moved while the real one was watched (counters, moments) moves on at the same pace.
"""

from __future__ import annotations

import gzip
import http.client
import multiprocessing
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection

import yaml

from everything import Everything, everything
from inference_probes import answer_all

WORKERS, SERVERS = 8, 2
STEPS_SECONDS = 25.0
"""Warm-up of the simulated host: the time until its usual step time is known."""
WATCHED_SECONDS = 10.0
INTERVAL = 5.0
"""Seconds between two samples of what was before."""
STEP_PATTERN = {"name": "step", "regex": r"step (?P<step>\d+)/(?P<total>\d+)"}
WINDOW = re.compile(
    r"\b([a-zA-Z_:][\w:]*)(?:\{[^}]*\})?\[(\d+)([smhd])\](?:\s+offset (\d+)([smhd]))?"
)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST = 600.0
"""Seconds of what was before: an hour of a thousand boxes took 12 GB. Less than the hour too that
Prometheus lets one target's samples be older than another's."""
HISTORY = "/history"


@dataclass(frozen=True, slots=True)
class Line:
    """One series: name with labels, value at a moment, and by how much it moves a second."""

    series: str
    value: float
    pace: float

    @property
    def metric(self) -> str:
        return self.series.partition("{")[0]


@dataclass(frozen=True, slots=True)
class Box:
    """Returns the samples of a host, as of `moment` (seconds since the epoch)."""

    lines: tuple[Line, ...]
    moment: float

    def page(self, now: float) -> bytes:
        """What it shows at that moment."""
        past = now - self.moment
        return b"".join(
            f"{one.series} {one.value + one.pace * past!r}\n".encode() for one in self.lines
        )

    def history(self, windows: Mapping[str, float], now: float) -> bytes:
        """What it had shown until then: of each metric as much as `windows` (seconds) says."""
        return "".join(self._before(windows, now)).encode()

    def _before(self, windows: Mapping[str, float], now: float) -> Iterator[str]:
        # the series that Prometheus recorded for the host, its own included: moments of old
        recorded = [
            Line(f'{metric}{{run="bench"}}', self.moment - STEPS_SECONDS, 0.0)
            for metric in windows
            if ":" in metric
        ]
        for one in (*self.lines, *recorded, Line("up", 1.0, 0.0)):
            first = -round(windows.get(one.metric, 0) / INTERVAL)
            for number in range(first, 0):
                when = now + number * INTERVAL
                value = one.value + one.pace * (when - self.moment)
                yield f"{one.series} {value!r} {round(when * 1000)}\n"


def read(page: bytes) -> Mapping[str, float]:
    """The value of each series of a page."""
    lines = (line for line in page.decode().splitlines() if line and not line.startswith("#"))
    parts = (line.rpartition(" ") for line in lines)
    return {series: float(value) for series, _, value in parts}


def living(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> list[Line]:
    """The series of `after`; counters and moments that had moved since `before` move on.

    A moment moves as the clock does: that of a step jumps, and a box does not stall between them.
    """
    found = []
    for series, value in after.items():
        pace, metric = 0.0, series.partition("{")[0]
        if value != before.get(series, value):
            if metric.endswith("_timestamp_seconds"):
                pace = 1.0
            elif metric.endswith("_total"):
                pace = (value - before[series]) / seconds
        found.append(Line(series, value, pace))
    return found


def windows(expressions: Iterable[str]) -> dict[str, float]:
    """How far back the rules look at each metric, in seconds, up to LONGEST."""
    found = dict[str, float]()
    for expression in expressions:
        for metric, size, unit, offset, of in WINDOW.findall(expression):
            back = int(size) * SECONDS[unit] + (int(offset) * SECONDS[of] if offset else 0)
            found[metric] = max(found.get(metric, 0), min(back, LONGEST))
    return found


def a_box() -> Box:
    """A box with everything switched on, whose run makes a step each second."""
    with everything(WORKERS) as box:
        _tell_of_steps(box)
        began = time.monotonic()
        pages, ends = [], (STEPS_SECONDS, STEPS_SECONDS + WATCHED_SECONDS)
        step = 0
        for end in ends:
            while time.monotonic() < began + end:
                step += 1
                with box.log.open("a") as log:
                    log.write(f"step {step}/100000\n")
                time.sleep(1.0)
                box.program.scrape()
            pages.append((time.monotonic(), read(box.program.scrape())))
        moment = time.time()
    (first, before), (second, after) = pages
    return Box(tuple(living(before, after, second - first)), moment)


def _tell_of_steps(box: Everything) -> None:
    """Let the exporter read steps from the log, name a trainer, and ask fewer servers."""
    file = box.folder / "exporter.yml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    (run,) = content["runs"]
    run["workers"][0]["role"] = "trainer"
    run["logs"][0]["patterns"] = [STEP_PATTERN]
    run["inference"] = run["inference"][:SERVERS]
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    connection = http.client.HTTPConnection("127.0.0.1", box.program.port, timeout=30)
    connection.request("POST", "/-/reload")
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise SystemExit(f"the exporter does not take its new configuration: {answer.read()!r}")
    connection.close()


def _answer(page: bytes, kind: str) -> bytes:
    packed = gzip.compress(page, 1)
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    )
    return head.encode() + packed


def _hand_out(box: Box, windows: Mapping[str, float], pipe: Connection) -> None:
    """Answer every request with the page of now, or with what was before this began."""
    kind = "text/plain; version=0.0.4"

    @lru_cache(maxsize=1)
    def before(minute: int) -> bytes:
        return _answer(box.history(windows, minute * 60), kind)

    @lru_cache(maxsize=1)
    def page(second: int) -> bytes:
        return _answer(box.page(second), kind)

    def answer(head: bytes) -> bytes:
        now = int(time.time())
        return before(now // 60) if head.startswith(f"GET {HISTORY}".encode()) else page(now)

    answer_all(answer, pipe)


@contextmanager
def handing_out(box: Box, windows: Mapping[str, float]) -> Iterator[int]:
    """The port at which every box is to be had, and below HISTORY what was before."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hand_out, args=(box, windows, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()
