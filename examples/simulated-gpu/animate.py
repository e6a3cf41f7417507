"""Two GPUs for the demo: updates the state of a simulated host until stopped.

    python animate.py --folder F [--devices 2] [--memory-back-after 2] [--prepare]

A process holds a GPU while `F/holders/PID` says so in one line: the index of the GPU, and bytes.
When it has ended it is no longer listed, and its memory is back some time later, as with a driver.
`echo FAULT > F/fault` does one of: `xid GPU CODE`, `lose GPU`, `find GPU`, `exclusive GPU`,
`shared GPU`, `hang`, `release`.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simulated_gpu import GIB, BuildError, Gpu, Process, SimulatedBox, build, gpu

PERIOD = 1.0
DEVICE_MEMORY = 24 * GIB
IDLE_WATTS, BUSY_WATTS = 28, 330
IDLE_CELSIUS, BUSY_CELSIUS = 34, 76
IDLE_MHZ, BUSY_MHZ = 345, 1980
WARMING_SECONDS = 40
EXCLUSIVE_PROCESS = 3
"""A compute mode, as NVML numbers them."""


def advance(
    device: Gpu,
    processes: Sequence[Process],
    *,
    phase: float,
    moment: float,
    seconds: float,
    owed: int = 0,
) -> Gpu:
    """The GPU `seconds` later, at `moment`, with `processes` on it; `phase` makes GPUs differ.

    `owed` are bytes of processes that have ended, which it has not given back yet.
    """
    load = 0.82 + 0.12 * math.sin(moment / 7 + phase) if processes else 0.0
    target = IDLE_CELSIUS + (BUSY_CELSIUS - IDLE_CELSIUS) * load
    before = device.temperature if device.temperature is not None else IDLE_CELSIUS
    change = (target - before) * min(1.0, seconds / WARMING_SECONDS)
    # whole degrees: a change of less than one still has to get there
    step = math.ceil(change) if change > 0 else math.floor(change)
    watts = IDLE_WATTS + (BUSY_WATTS - IDLE_WATTS) * load
    clock = round(IDLE_MHZ + (BUSY_MHZ - IDLE_MHZ) * math.sqrt(load))
    room = (device.memory_total or 0) - (device.memory_reserved or 0)
    share = round(100 * load / len(processes)) if processes else 0
    return replace(
        device,
        memory_used=min(owed + sum(process.memory or 0 for process in processes), room),
        utilization_gpu=round(100 * load),
        utilization_memory=round(60 * load),
        temperature=before + step,
        temperature_memory=before + step + 6,
        power_mw=round(watts * 1000),
        energy_mj=(device.energy_mj or 0) + round(watts * seconds * 1000),
        clock_graphics_mhz=clock,
        clock_sm_mhz=clock,
        clock_reasons=0 if processes else 0x1,
        processes=tuple(
            replace(process, sm=share, memory_bandwidth=round(0.6 * share)) for process in processes
        ),
    )


def read_holders(folder: Path, proc: Path = Path("/proc")) -> Mapping[int, Sequence[Process]]:
    """The living processes that registered in `folder`, by the index of the GPU."""
    holders: dict[int, list[Process]] = {}
    for file in sorted(folder.glob("[0-9]*")):
        try:
            index, memory = (int(word) for word in file.read_text(encoding="utf-8").split())
            pid, written = int(file.name), file.stat().st_mtime
        except (OSError, ValueError):  # gone, or half written
            continue
        started = _start_time(proc, pid)
        # one second of tolerance for the ticks; a later process has the number, not the GPU
        if started is not None and started <= written + 1:
            holders.setdefault(index, []).append(Process(pid=pid, memory=memory))
    return holders


class Ended:
    """Remembers the memory of processes that have ended, for `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: Mapping[int, Sequence[Process]] = {}
        self._owed: list[tuple[float, int, int]] = []

    def owed(self, holders: Mapping[int, Sequence[Process]], now: float) -> Mapping[int, int]:
        """Bytes not yet given back, by GPU; `holders` are those of now, by the monotonic clock."""
        present = {process.pid for processes in holders.values() for process in processes}
        self._owed += [
            (now + self._seconds, index, process.memory or 0)
            for index, processes in self._last.items()
            for process in processes
            if process.pid not in present
        ]
        self._owed = [debt for debt in self._owed if debt[0] > now]
        self._last = holders
        sums: dict[int, int] = {}
        for _, index, memory in self._owed:
            sums[index] = sums.get(index, 0) + memory
        return sums


def _start_time(proc: Path, pid: int) -> float | None:
    try:
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        stat = (proc / "stat").read_text(encoding="utf-8")
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    boot = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime "))
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def switch_on(box: SimulatedBox, fault: str) -> bool:
    """Let one fault of the demo happen; False when there is no such fault, or no such GPU."""
    try:
        match fault.split():
            case ["xid", index, code]:
                box.raise_xid(int(index), int(code))
            case ["lose", index]:
                box.lose(int(index))
            case ["find", index]:
                box.find(int(index))
            case ["exclusive", index]:
                box.change_gpu(int(index), compute_mode=EXCLUSIVE_PROCESS)
            case ["shared", index]:
                box.change_gpu(int(index), compute_mode=0)
            case ["hang"]:
                box.hang()
            case ["release"]:
                box.release()
            case _:
                return False
    except (ValueError, IndexError):
        return False
    return True


def _take_fault(file: Path) -> str:
    try:
        fault = file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    if fault:  # else the shell has made the file, and not yet written the word
        file.unlink(missing_ok=True)
    return fault


def animate(box: SimulatedBox, folder: Path, stop: threading.Event, ended: Ended) -> None:
    """Update the host every second until `stop` is set; then unload its driver."""
    last = time.monotonic()
    while not stop.wait(PERIOD):
        if fault := _take_fault(folder / "fault"):
            known = switch_on(box, fault)
            print(f"fault: {fault}" if known else f"unknown fault: {fault}", flush=True)
        now = time.monotonic()
        holders = read_holders(folder / "holders")
        owed = ended.owed(holders, now)
        gpus = [
            advance(
                device,
                holders.get(index, ()),
                phase=2.0 * index,
                moment=now,
                seconds=now - last,
                owed=owed.get(index, 0),
            )
            for index, device in enumerate(box.state.gpus)
        ]
        box.write(replace(box.state, gpus=tuple(gpus)))
        last = now
    box.unload_driver()  # a stale state must not pass for a reading


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Simulated GPUs for the demo.")
    parser.add_argument("--folder", type=Path, required=True, help="of the library and its state")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument(
        "--memory-back-after", type=float, default=2.0, help="seconds from the end of a process on"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="make everything, print the environment, and end"
    )
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    folder = options.folder.resolve()
    (folder / "holders").mkdir(parents=True, exist_ok=True)
    try:
        library = build(folder)
    except BuildError as error:
        print(f"animate: {error}", file=sys.stderr)
        return 1
    gpus = [
        gpu(index, memory_total=DEVICE_MEMORY, power_limit_mw=350_000)
        for index in range(options.devices)
    ]
    box = SimulatedBox(folder, gpus, library=library)
    box.make_device_files()
    for name, value in box.environment.items():
        print(f"{name}={value}", flush=True)
    if not options.prepare:
        animate(box, folder, stop, Ended(options.memory_back_after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
