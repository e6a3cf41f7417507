"""Reports the progress of a training from inside: `trainwarden.beat(step=…)`.

A call only appends to a queue; a daemon thread writes the newest values, at most once a second, to
a file of this process, which the exporter reads (docs/heartbeat.md). Without an exporter the file
is written all the same, and nobody reads it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Real
from pathlib import Path
from typing import Any

WRITE_SECONDS = 1.0
"""Time between two writes: no more than this is lost when the process is killed."""

EXIT_SECONDS = 2.0
"""How long the end of the process waits for the last write; a dead mount must not hold it."""

MAX_WAITING = 4096
"""Calls that wait for the next write; of more, the oldest are dropped."""

MAX_NUMBERS = 50
"""Different names of numbers that are kept."""

MAX_STEPS = 120
"""Steps whose time is kept, at least STEP_SECONDS apart: two minutes of them, or more."""

STEP_SECONDS = 1.0

STALE_SECONDS = 7 * 86400.0
"""Age at which the file of an earlier process is removed."""

log = logging.getLogger("trainwarden")

Beat = tuple[float, int | None, int | None, str | None, Mapping[str, float]]
"""Time, step, total, phase and numbers of one call."""


class Writer:
    """Merges beats and writes them. Only its thread touches the merged values."""

    def __init__(self) -> None:
        self.waiting: deque[Beat] = deque(maxlen=MAX_WAITING)
        self.phase = "training"
        """The phase of the last call, to which a nested phase returns."""
        self.ignored: set[str] = set()
        """Names whose values are no plain numbers."""
        self._start_once = threading.Lock()
        self._closing, self._closed = threading.Event(), threading.Event()
        self._content: dict[str, Any] = {}
        self._numbers: dict[str, float] = {}
        self._number_times: dict[str, float] = {}
        self._steps: deque[tuple[int, float]] = deque(maxlen=MAX_STEPS)
        """Steps with the times at which they were reported, for the comparison of ranks."""

    def start(self) -> None:
        """Starts the thread, once."""
        if self._start_once.acquire(blocking=False):
            threading.Thread(target=self._run, name="trainwarden beat", daemon=True).start()
            atexit.register(self.close)

    def close(self) -> None:
        """Has the last values written, as far as that takes no longer than EXIT_SECONDS."""
        self._closing.set()
        self._closed.wait(EXIT_SECONDS)

    def _run(self) -> None:
        path: Path | None = None
        reported: set[str] = set()
        while True:
            ended = self._closing.wait(WRITE_SECONDS)
            with suppress(Exception):  # tried again after the next beat
                if self._merge():
                    path = path or prepare_file()
                    numbers = {"numbers": self._numbers, "number_times": self._number_times}
                    write(path, {**self._content, **numbers, "steps": list(self._steps)})
            for name in sorted(self.ignored.difference(reported)):
                log.warning("beat: %s is not a plain number: pass its .item()", name)
            reported |= self.ignored
            if ended:
                self._closed.set()
                return

    def _merge(self) -> bool:
        """Takes what waits into the content. Returns whether anything did."""
        content, merged = self._content or identify(), False
        while self.waiting:
            moment, step, total, phase, numbers = self.waiting.popleft()
            merged = True
            content["written"] = moment
            if step is not None and step != content.get("step"):
                content["step"], content["step_time"] = step, moment
                keep_step(self._steps, step, moment)
            if total is not None:
                content["total"] = total
            if phase is not None and phase != content.get("phase"):
                content["phase"], content["phase_time"] = phase, moment
            for name, number in numbers.items():
                if name in self._numbers or len(self._numbers) < MAX_NUMBERS:
                    self._numbers[name], self._number_times[name] = number, moment
        self._content = content
        return merged


def keep_step(steps: deque[tuple[int, float]], step: int, moment: float) -> None:
    """Keeps steps that are STEP_SECONDS apart, so that all ranks keep largely the same ones.

    Which these are follows from their number: of fast steps the multiples of a power of two.
    """
    if steps:
        last, at = steps[-1]
        if step < last:  # resumed
            steps.clear()
        elif moment - at < STEP_SECONDS or step % (1 << max(1, step - last).bit_length() - 1):
            return
    steps.append((step, moment))


_writer = Writer()


def _after_fork() -> None:
    # Thread, locks and queue belong to the parent; the child reports only if it calls `beat`.
    global _writer  # noqa: PLW0603 - replaced as a whole, so that no lock of the parent is kept
    atexit.unregister(_writer.close)
    _writer = Writer()


os.register_at_fork(after_in_child=_after_fork)


def beat(
    step: int | None = None, total: int | None = None, phase: str | None = None, **numbers: float
) -> None:
    """Reports completed steps, total steps, the phase, and numbers such as `loss`; all optional.

    Takes microseconds, never waits and never raises; may be called from any thread and in every
    step. Of a run with several ranks, rank 0 reports; of the others, by the environment variable
    RANK, only the times of the steps are kept, which show the slow one. Phases: starting,
    training, saving, evaluating, updating_weights, waiting_for_rollouts, finished. A number is an
    int or a float, not a tensor: reading a tensor would wait for the GPU.
    """
    try:
        writer = _writer
        plain: Mapping[str, Any] = numbers
        if any(type(number) is not float and type(number) is not int for number in plain.values()):
            plain = {name: float(one) for name, one in plain.items() if isinstance(one, Real)}
            writer.ignored |= numbers.keys() - plain.keys()
        if (rank := os.environ.get("RANK", "0")) != "0":
            if step is None or not rank.isdecimal():
                return
            total, phase, plain = None, None, {}
        if phase is not None:
            writer.phase = phase = str(phase)
        writer.waiting.append(
            (
                time.time(),
                None if step is None else int(step),
                None if total is None else int(total),
                phase,
                plain,
            )
        )
        writer.start()
    except Exception:  # noqa: BLE001, S110 - the training continues, whatever is wrong here
        pass


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Reports that the phase `name` lasts as long as the `with` block, then the one before."""
    before = _writer.phase
    beat(phase=name)
    try:
        yield
    finally:
        beat(phase=before)


def beats_folder() -> Path:
    """The folder of the files: below $TRAINWARDEN_FOLDER, else in the state folder of the account.

    Raises RuntimeError where the account has no home.
    """
    if folder := os.environ.get("TRAINWARDEN_FOLDER"):
        return Path(folder) / "beats"
    # the base directory specification ignores a relative path
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "trainwarden" / "beats"


def prepare_file() -> Path:
    """The file of this process, in a folder that exists. Raises OSError, RuntimeError."""
    folder = beats_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob("*.beat"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_SECONDS:
                path.unlink()
    return folder / f"{os.getpid()}.beat"


def identify() -> dict[str, Any]:
    """What tells the exporter whose beats these are. Raises OSError."""
    # proc(5): field 22 is the start time; the name, field 2, may contain anything
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    return {
        "run": os.environ.get("TRAINWARDEN_RUN"),
        "rank": os.environ.get("RANK", "0"),
        "pid": os.getpid(),
        "start_ticks": int(fields.rpartition(")")[2].split()[19]),
        "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,  # noqa: PTH116 - a link of proc(5)
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the file so that a reader never sees half of it. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    # In a folder that several accounts share, another one may have put a link there.
    new.unlink(missing_ok=True)
    with new.open("x", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
    new.replace(path)
