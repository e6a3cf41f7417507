"""A box of GPUs that is not there: builds the simulated NVML and writes the state it answers from.

library = build(folder)                      # folder/libnvidia-ml.so.1
box = SimulatedBox(folder, [gpu(0), gpu(1)], library=library)
subprocess.run(program, env={**os.environ, **box.environment})
box.change_gpu(0, temperature=91)            # the program sees it at its next call
box.raise_xid(1, 79)
box.hang("nvmlDeviceGetTemperature")         # or hang() for every function; then box.release()
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulated_state import (
    GIB,
    SOURCE,
    Driver,
    Event,
    Gpu,
    Mig,
    NvLink,
    Process,
    State,
    functions,
    gpu,
    render,
)

__all__ = [
    "GIB",
    "BuildError",
    "Driver",
    "Event",
    "Gpu",
    "Mig",
    "NvLink",
    "Process",
    "SimulatedBox",
    "State",
    "build",
    "gpu",
    "load",
]

LIBRARY_NAME = "libnvidia-ml.so.1"
STATE_VARIABLE = "SIMULATED_GPU_STATE"

NEWER_SYMBOLS = (
    "nvmlDeviceGetMemoryInfo_v2",  # R510
    "nvmlDeviceGetComputeRunningProcesses_v3",  # R510
    "nvmlDeviceGetGraphicsRunningProcesses_v3",  # R510
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",  # R510
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",  # R510
    "nvmlDeviceGetCurrentClocksEventReasons",  # R535
    "nvmlDeviceGetSupportedClocksEventReasons",  # R535
    "nvmlDeviceGetTemperatureV",  # R570
)
"""What the library of an old driver (R470) does not have."""

_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
_KEPT_EVENTS = 256


class BuildError(Exception):
    """The library cannot be built; one line that says why."""


def build(folder: Path, *, old_driver: bool = False, missing: Sequence[str] = ()) -> Path:
    """Compile the library as `folder/libnvidia-ml.so.1`, unless it is there from the same source.

    `missing` functions are no symbols of it, as with an older driver; `old_driver` leaves out
    `NEWER_SYMBOLS`. Two variants need two folders. The compiler is `$CC`, else `cc`.
    """
    compiler = shlex.split(os.environ.get("CC") or "cc")
    hidden = sorted({*missing, *(NEWER_SYMBOLS if old_driver else ())})
    if unknown := set(hidden) - functions():
        raise ValueError(f"the simulated NVML has no function {', '.join(sorted(unknown))}")
    command = [*compiler, *_FLAGS, f"-Wl,-soname,{LIBRARY_NAME}"]
    recipe = "\n".join([*command, *hidden, SOURCE.read_text(encoding="utf-8")])
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    library = folder / LIBRARY_NAME
    if library.exists() and digest.encode() in library.read_bytes():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        made = Path(name) / LIBRARY_NAME
        if hidden:
            script = Path(name) / "symbols"
            script.write_text(f"{{ local: {' '.join(f'{name};' for name in hidden)} }};\n")
            command.append(f"-Wl,--version-script,{script}")
        command += [f'-DSIMULATED_DIGEST="{digest}"', "-o", str(made), str(SOURCE), "-lpthread"]
        _run(command)
        made.replace(library)
    return library


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler the user chose
    except FileNotFoundError:
        raise BuildError(
            f"no C compiler: {command[0]!r} is not there (Debian and Ubuntu: gcc and libc6-dev)"
        ) from None
    if done.returncode != 0:
        raise BuildError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")


def load(library: Path) -> None:
    """Make `library` the NVML of this process, also for pynvml, which looks it up by its name.

    For good: the loader keeps the first library of that name. `SIMULATED_GPU_STATE` can change.
    """
    ctypes.CDLL(str(library))


class SimulatedBox:
    """The state file of one box: `folder/state`, replaced as a whole at every change.

    Raises `ValueError` when a state names a function or an error that the library does not know, so
    that a misspelt fault cannot pass for a survived one.
    """

    def __init__(
        self,
        folder: Path,
        gpus: Sequence[Gpu] = (),
        *,
        library: Path | None = None,
        count_calls: bool = False,
    ) -> None:
        self._library = library
        self.state_file = folder / "state"
        self.calls_file = folder / "calls" if count_calls else None
        self._state = State()
        folder.mkdir(parents=True, exist_ok=True)
        self.write(State(gpus=tuple(gpus)))

    @property
    def state(self) -> State:
        """The state as last written."""
        return self._state

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to see this box through pynvml."""
        environment = {STATE_VARIABLE: str(self.state_file)}
        if self._library is not None:
            earlier = os.environ.get("LD_LIBRARY_PATH")
            folders = [str(self._library.parent), *([earlier] if earlier else [])]
            environment["LD_LIBRARY_PATH"] = ":".join(folders)
        return environment

    def write(self, state: State) -> None:
        """Make `state` what every function answers from its next call on."""
        text = render(state, calls_file=self.calls_file)
        replacement = self.state_file.with_name(f"{self.state_file.name}.new")
        replacement.write_text(text, encoding="utf-8")
        replacement.replace(self.state_file)
        self._state = state

    def make_device_files(self) -> Path:
        """Plain files where the driver's device files would lie: `folder/dev/nvidia0`, and so on.

        Returns the folder, `folder/dev`. A program that opens one of them holds a GPU as far as its
        open files tell.
        """
        folder = self.state_file.parent / "dev"
        folder.mkdir(exist_ok=True)
        minors = [device.minor for device in self._state.gpus if device.minor is not None]
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in minors)):
            (folder / name).touch()
        return folder

    def change_driver(self, **changes: Any) -> None:
        """Set fields of `Driver`."""
        self.write(replace(self._state, driver=replace(self._state.driver, **changes)))

    def change_gpu(self, index: int, **changes: Any) -> None:
        """Set fields of the `Gpu` at `index`."""
        gpus = list(self._state.gpus)
        gpus[index] = replace(gpus[index], **changes)
        self.write(replace(self._state, gpus=tuple(gpus)))

    def lose(self, index: int) -> None:
        """Let a GPU fall off the bus; `find` brings it back."""
        self.change_gpu(index, lost=True)

    def find(self, index: int) -> None:
        """Bring a lost GPU back."""
        self.change_gpu(index, lost=False)

    def remove(self, index: int) -> None:
        """Take a GPU out, so that it is not even counted; its old handles return GPU_IS_LOST."""
        gpus = [device for place, device in enumerate(self._state.gpus) if place != index]
        self.write(replace(self._state, gpus=tuple(gpus)))

    def hang(self, *functions: str) -> None:
        """Let calls of `functions` (all, when none is named) block until `release`."""
        self.change_driver(hang=functions or ("*",))

    def release(self) -> None:
        """Let hung calls go on, and answer from the state of now."""
        self.change_driver(hang=())

    def unload_driver(self) -> None:
        """Take the driver away: programs lose it, and initialising again fails."""
        generation = self._state.driver.generation + 1
        self.change_driver(generation=generation, init_error="DRIVER_NOT_LOADED")

    def load_driver(self) -> None:
        """(Re)load the driver: programs that had initialised must do it again."""
        self.change_driver(generation=self._state.driver.generation + 1, init_error=None)

    def raise_xid(self, index: int, xid: int, *, delay: float = 0.0) -> Event:
        """Queue a critical error of a GPU, to be returned `delay` seconds from now.

        Only event sets that had been registered before it was due return it.
        """
        events = self._state.events
        event = Event(
            id=events[-1].id + 1 if events else 1,
            gpu=self._state.gpus[index].uuid,
            data=xid,
            time_ns=time.time_ns() + int(delay * 1e9),
        )
        self.write(replace(self._state, events=(*events, event)[-_KEPT_EVENTS:]))
        return event

    def calls(self) -> Counter[str]:
        """How often each function was entered, by all programs that saw this box.

        Needs `count_calls`.
        """
        if self.calls_file is None:
            raise ValueError("calls are not counted: SimulatedBox(..., count_calls=True)")
        try:
            return Counter(self.calls_file.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return Counter()

    def called(self, function: str) -> int:
        """How often `function` was entered; as `calls`, and raises for an unknown function."""
        if function not in functions():
            raise ValueError(f"the simulated NVML has no function {function!r}")
        return self.calls()[function]
