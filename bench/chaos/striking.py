"""Brings faults about in real programs, and records when each began and ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from chaos.faults import Fault
from chaos.programs import Program, Truth

TRAINS_WITHIN = 30.0
"""Seconds since its last step within which a program counts as training."""
PATIENCE = 150.0
"""How long a program that is down may take to train again before its fault is left out."""
SAVE_SECONDS = 120.0
DISK_SECONDS, PORT_SECONDS, NAN_SECONDS, STOP_SECONDS = 100.0, 45.0, 100.0, 240.0
OOM_BYTES = 512 << 20
"""Above its memory limit: there the kernel would end a program that leaks."""
LEAK_SECONDS = 300.0
DID_NOT_TRAIN = "it did not train"


Record = dict[str, Any]
"""A fault as it came about: what `strike` returns."""


class Striker:
    """What strikes one program."""

    def __init__(self, program: Program, over: Callable[[], bool], *, is_kept: bool) -> None:
        self._program = program
        self._is_kept = is_kept
        self._truth = Truth(program.folder)
        self._server_truth = Truth((program.server or program).folder)
        self._over = over

    def strike_all(self, faults: Sequence[Fault], begin: float, records: list[Record]) -> None:
        """Bring all faults about at their times, which count from `begin` (unix seconds)."""
        for fault in faults:
            while not self._over() and (wait := begin + fault.at - time.time()) > 0:
                time.sleep(min(wait, 1.0))
            if self._over():
                break
            records.append(self.strike(fault))
            if records[-1].get("skipped") == DID_NOT_TRAIN and not self._over():
                records.append(self._repair(fault.program))

    def strike(self, fault: Fault) -> Record:
        """Bring a fault about, and wait for its end.

        Returns its kind, its program, and either when it began and ended (unix seconds; the same
        for most) or, in `skipped`, why it did not come about.
        """
        record: dict[str, Any] = {"kind": fault.kind, "program": fault.program, "planned": fault.at}
        if not self._until(self._trains, PATIENCE):
            return record | {"skipped": DID_NOT_TRAIN}
        try:
            return record | {"step": self._last_step(), **getattr(self, f"_{fault.kind}")()}
        except (psutil.NoSuchProcess, ProcessLookupError):
            return record | {"skipped": "it ended meanwhile"}
        except FileNotFoundError:
            return record | {"skipped": "its log is under another name"}

    def _repair(self, name: str) -> Record:
        """Do what an operator does: delete half checkpoints, end what hangs, start what is down."""
        record = {"kind": "operator", "program": name, **_now()}
        for path in self._program.out.glob("checkpoint-*"):
            if not (path / "trainer_state.json").exists():
                shutil.rmtree(path, ignore_errors=True)
        for path in self._program.out.glob("step_*.pt"):
            if not zipfile.is_zipfile(path):
                path.unlink(missing_ok=True)
        for part in self._program.parts:
            found = part.processes()
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if not found or not self._is_kept:
                part.start()
        return record

    def _trains(self) -> bool:
        steps = self._truth.of("step")
        return bool(steps) and time.time() - steps[-1]["time"] < TRAINS_WITHIN

    def _last_step(self) -> int:
        return max(int(event["step"]) for event in self._truth.of("step"))

    def _until(self, true: Callable[[], object], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._over():
            if true():
                return True
            time.sleep(0.5)
        return False

    def _root(self) -> psutil.Process:
        """The process that was started last. Raises NoSuchProcess if it has ended."""
        return _last_started(self._truth)

    def _server_root(self) -> psutil.Process:
        return _last_started(self._server_truth)

    def _training_pid(self) -> int:
        return int(self._truth.of("step")[-1]["pid"])

    @contextmanager
    def _order(self, what: str) -> Iterator[int]:
        """Have the process that trains do something; the next one does not."""
        pid, file = self._training_pid(), self._program.folder / f"do.{what}"
        file.write_text(str(pid))
        try:
            yield pid
        finally:
            file.unlink()

    def _kill(self) -> Record:
        self._root().kill()
        return _now()

    def _server_kill(self) -> Record:
        self._server_root().kill()
        return _now()

    def _server_hang(self) -> Record:
        below = self._server_root().children(recursive=True)
        engine = next(one for one in below if "EngineCore" in " ".join(one.cmdline()))
        engine.send_signal(signal.SIGSTOP)
        return _now()

    def _stop(self) -> Record:
        began, stopped = time.time(), self._program.processes()
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        self._until(lambda: False, STOP_SECONDS)
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        return {"from": began, "until": time.time()}

    def _hang(self) -> Record:
        before = len(self._truth.of("hang"))
        with self._order("starve"):
            if not self._until(lambda: len(self._truth.of("hang")) > before, 60):
                return {"skipped": "it made no step"}
            moment = self._truth.of("hang")[-1]["time"]
        return {"from": moment, "until": moment}

    def _leak(self) -> Record:
        limit = self._program.kind.limit << 20
        with self._order("leak") as pid:
            process, over_limit = psutil.Process(pid), 0.0
            deadline = time.monotonic() + LEAK_SECONDS
            while time.monotonic() < deadline and not self._over():
                try:
                    size = process.memory_info().rss
                except psutil.NoSuchProcess:
                    break
                if size > limit:
                    over_limit = over_limit or time.time()
                if size > limit + OOM_BYTES:
                    process.kill()
                    return {"from": over_limit, "until": over_limit, "detail": "out of memory"}
                time.sleep(0.5)
        if not over_limit:
            return {"skipped": "it did not leak so much"}
        return {"from": over_limit, "until": over_limit}

    def _half(self) -> Record:
        before = len(self._truth.of("half_saved"))
        with self._order("slow_save"):
            if not self._until(lambda: len(self._truth.of("half_saved")) > before, SAVE_SECONDS):
                return {"skipped": "it did not save"}
            step = self._last_step()
            self._root().kill()
            return {**_now(), "step": step}

    def _disk(self) -> Record:
        filler = self._program.out / "filler"
        began = time.time()
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            self._until(lambda: False, DISK_SECONDS)
        finally:
            filler.unlink(missing_ok=True)
        return {"from": began, "until": time.time()}

    def _port(self) -> Record:
        self._root().kill()
        began = time.time()
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not self._until(lambda: _listens(stranger, self._program.port), 10):
                return {"from": began, "until": began, "detail": "its port was not free"}
            self._until(lambda: False, PORT_SECONDS)
        return {"from": began, "until": time.time()}

    def _nan(self) -> Record:
        began = time.time()
        with self._order("nan_log"):
            self._until(lambda: False, NAN_SECONDS)
        return {"from": began, "until": time.time()}

    def _renamed(self) -> Record:
        log = self._program.log
        log.rename(log.with_name(f"{log.name}.1"))
        return _now()

    def _truncated(self) -> Record:
        log = self._program.log
        shutil.copy(log, log.with_name(f"{log.name}.2"))
        os.truncate(log, 0)
        return _now()


def _last_started(truth: Truth) -> psutil.Process:
    return psutil.Process(truth.of("start")[-1]["pid"])


def _now() -> dict[str, float]:
    moment = time.time()
    return {"from": moment, "until": moment}


def _listens(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        return False
    return True
