"""A part of a training run, for tests: holds a simulated GPU until it is ended.

    gpu_program.py --box F --name trainer --child '--name engine --gpu 0 --memory 4096'

With `--gpu` its device files are open; with `--memory`, too, the driver lists it there. `--open`
opens one device file alone. It prints its name, and the pids of its children, once it and they hold
what they are to hold.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

LONGEST_SECONDS = 300
"""Limit of life, in seconds: no process stays for good when the test itself is killed."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--box", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--open", help="a device file")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--child", action="append", default=[], help="arguments of a child")
    options = parser.parse_args()
    end = threading.Event()
    handler = signal.SIG_IGN if options.deaf else lambda *_: end.set()
    signal.signal(signal.SIGTERM, handler)
    files = [] if options.gpu is None else ["nvidiactl", "nvidia-uvm", f"nvidia{options.gpu}"]
    for name in [*files, *([options.open] if options.open else [])]:
        os.open(options.box / "dev" / name, os.O_RDONLY)
    if options.memory is not None:
        (options.box / "holders" / str(os.getpid())).write_text(f"{options.gpu} {options.memory}\n")
    children = [
        subprocess.Popen(
            [sys.executable, "-S", __file__, "--box", options.box, *shlex.split(arguments)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for arguments in options.child
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    print(options.name, *(child.pid for child in children), flush=True)  # noqa: T201 - the protocol of the test
    end.wait(LONGEST_SECONDS)


if __name__ == "__main__":
    main()
