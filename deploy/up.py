"""Runs the whole stack until Ctrl-C: what `trainwarden up` and `make up` do.

Without a configuration it watches the runs that `trainwarden run` announces, or if there is none,
runs the demo: a small training run with a leaking worker.
"""

from __future__ import annotations

import argparse
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import children
import ports
import readiness
import supervision
from claims import beside, claimed, command_to_end, default_folder, running_folders
from detached import LAST_LINE, detach
from readiness import PortTakenError, tail
from runfolder import CONFIG_FILES, RunFolder, prepare_announced, prepare_demo, prepare_own
from stack import PROJECT, StackError, find_binaries, script
from trainwarden_exporter.config import Config, announcements_folder
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.processes.procfs import Identity, read_command_line, read_processes
from trainwarden_remediator.actions.process import ACTION_VARIABLE

GRACE_SECONDS = 10.0
SHUTDOWN_SECONDS = 60.0
PORT_ATTEMPTS = 4
"""How often the stack is started if another program takes one of the ports that it has chosen."""
LEAKING = "rollout-1"
PAGES = ("/alerts", "/classic/alerts", "/api/v1/alerts")
"""Pages of Prometheus: upstream's and Debian's 2.x; Debian's 3.5 has the API alone."""
ALERTMANAGER_PAGES = ("/script.js", "/api/v2/alerts")
"""Upstream's web application, and what Debian's Alertmanager has instead: the API alone."""
BOARDS = PROJECT / "grafana" / "dashboards"

Child = subprocess.Popen[bytes]


class Interrupted(Exception):  # noqa: N818 - not an error: the user ended it
    """A signal asked for the end."""


class Signals:
    """Turns the signals that ask for the end into `Interrupted`, at places that expect it."""

    def __init__(self) -> None:
        self._reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._writer = writer
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def pause(self, seconds: float) -> None:
        """Wait. Raises Interrupted as soon as a signal has arrived."""
        readable, _, _ = select.select([self._reader], [], [], seconds)
        if readable:
            self._reader.recv(100)
            raise Interrupted


def main() -> int:
    """Run the stack as the command line and the environment ask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; CONFIG and MODE in the environment stand for two of them."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FOLDER",
        default=Path(os.environ["CONFIG"]) if os.environ.get("CONFIG") else None,
        help="folder with your exporter.yml, remediator.yml, or both",
    )
    parser.add_argument(
        "--demo",
        action=argparse.BooleanOptionalAction,
        help="run the demo (default: if there is no FOLDER, and no run of `trainwarden run`)",
    )
    parser.add_argument(
        "--mode",
        choices=("observe", "act"),
        default=os.environ.get("MODE") or None,
        help="what the remediator may do, also with runs of `trainwarden run` (default: act"
        " with the demo, else observe)",
    )
    parser.add_argument(
        "--detach", action="store_true", help="run in the background; `trainwarden down` ends it"
    )
    parser.add_argument(
        "--folder",
        type=lambda text: Path(text).resolve(),
        help="where to keep logs, history and what is generated",
    )
    parser.add_argument(
        "--any-free", action="store_true", help="take any free ports, not the usual ones"
    )
    parser.add_argument("--background", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the stack. Returns the exit status: 0 after Ctrl-C, 1 when something is missing."""
    if options.mode not in (None, "observe", "act"):  # argparse does not look at a default
        print(f"MODE is {options.mode!r}: write observe or act", file=sys.stderr)
        return 2
    try:
        config = None if options.config is None else own_folder(options.config)
        demo = wants_demo(options.demo, config)
        mode = options.mode or ("act" if demo else "observe")
        folder = options.folder or default_folder(config, demo=demo)
        if options.detach:
            arguments = ["--background", "--folder", folder, "--mode", mode]
            arguments += ["--any-free"] * options.any_free
            arguments += ["--demo" if demo else "--no-demo"]
            return detach(folder, arguments if config is None else [*arguments, "--config", config])
        return run_here(folder, config, mode, options, demo=demo)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1


def wants_demo(given: bool | None, config: Path | None) -> bool:
    """Whether the demo runs: never unasked beside a run of the user's. Raises StackError."""
    if config is not None:
        if given:
            raise StackError("--demo runs without --config")
        return False
    if given is not None:
        return given
    announced = read_announcements(announcements_folder(Config()), time.time())
    active = {key.run for key, one in announced.workers.items() if not one.announcement.has_ended}
    if active:
        found = announced.workers.items()
        watched = {key.run for key, one in found if one.announcement.state != "finished"}
        say(f"The stack watches {', '.join(sorted(watched))}; `--demo` runs the demo instead.")
    return not active


def run_here(
    folder: Path, config: Path | None, mode: str, options: argparse.Namespace, *, demo: bool
) -> int:
    """Run the stack in `folder` until a signal comes. Raises StackError."""
    signals = Signals()
    script("supervisord")  # the first to be missed where the extra is not installed
    binaries = find_binaries(say=say)
    with claimed(folder):
        for other in beside(folder):
            say(
                f"Another stack runs in {other}: both watch the same runs of `trainwarden run`."
                " No restart is made twice, but each counts its own and calls you;"
                f" `trainwarden down --folder {shlex.quote(str(other))}` ends the other."
            )
        watched = "the demo run" if demo else "the runs of `trainwarden run`"
        if config is not None:
            watched = f"the runs in {shown(config)} and those of `trainwarden run`"
        how_to_end = f"`{command_to_end(folder)}`" if options.background else "Ctrl-C"
        any_free, is_announced = options.any_free, False
        for left in reversed(range(PORT_ATTEMPTS)):
            try:
                if demo:
                    end_leftovers(folder)
                    made = prepare_demo(folder, binaries, mode=mode, any_free=any_free)
                elif config is None:
                    made = prepare_announced(folder, binaries, mode=mode, any_free=any_free)
                else:
                    made = prepare_own(folder, config, binaries, mode=mode, any_free=any_free)
                check(made)
            except StackError as error:
                raise StackError(f"{error}\nNothing was started.") from error
            if not is_announced:
                say(f"Starting exporter, Prometheus, Alertmanager and remediator for {watched};")
                say("they are ready in half a minute, on a busy machine in one.")
                is_announced = True
            try:
                return run_stack(made, signals, mode, how_to_end)
            except PortTakenError as error:
                if not left:
                    raise
                say(f"{error}: starting again on other ports")
            # Two stacks that start at once would choose the same ports again.
            any_free = True
    raise AssertionError


def own_folder(path: Path) -> Path:
    """The absolute path of a folder of configuration. Raises StackError when it holds none."""
    folder = path.resolve()
    if not any((folder / name).exists() for name in CONFIG_FILES):
        raise StackError(
            f"there is no exporter.yml in {folder}: `trainwarden discover --output {folder}` "
            "writes one; `trainwarden run -- COMMAND` needs none"
        )
    return folder


def end_leftovers(folder: Path) -> None:
    """End demo processes of an earlier run in `folder` that was killed before it could do so."""

    def find() -> list[Identity]:
        return [
            process.identity
            for process in read_processes().values()
            if process.alive
            and (read_command_line(process.pid) or ())[-2:] == ("--folder", str(folder / "demo"))
        ]

    if find():
        say("ending what an earlier run left behind")
        children.end(find, grace=GRACE_SECONDS)


def check(run: RunFolder) -> None:
    """Have both programs read their configuration. Raises StackError with all that is wrong."""
    for name, path in (("exporter", run.exporter_file), ("remediator", run.remediator_file)):
        command: list[str | Path] = [script(f"trainwarden-{name}"), "check", path]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise StackError((result.stderr or result.stdout).strip())


def run_stack(run: RunFolder, signals: Signals, mode: str, how_to_end: str) -> int:
    """Start everything, tell what happens until a signal comes, end everything."""
    children.adopt_orphans()
    if run.demo:
        run.fault(LEAKING).parent.mkdir(parents=True, exist_ok=True)
        run.fault(LEAKING).write_text("leak\n", encoding="utf-8")
    supervisord = start("supervisord", "-n", "-s", "-c", run.supervisord_file)
    own = [supervisord]
    status = 1
    try:
        readiness.wait(run, supervisord, signals.pause)
        announce(run, mode, how_to_end)
        journal = ("trainwarden-remediator", "journal", "--config.file", run.remediator_file)
        own.append(start(*journal, "--follow", output=None))
        status = watch(run, own, signals)
    except Interrupted:
        status = 0
    except PortTakenError:
        raise
    except StackError as error:
        say(str(error))
    finally:
        stop(run, own)
    return status


def start(name: str, *arguments: str | Path, output: int | None = subprocess.DEVNULL) -> Child:
    """Start a program of our own environment, out of the terminal's reach: Ctrl-C is for us."""
    return subprocess.Popen(
        [script(name), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        start_new_session=True,
        preexec_fn=children.end_with(os.getpid()),  # noqa: PLW1509 - there are no threads here
    )


def announce(run: RunFolder, mode: str, how_to_end: str) -> None:
    """Tell where everything is and what to try."""
    # Beside another stack, the commands need the address and the file.
    is_found = running_folders() == [run.path]
    exporter = "" if is_found else f" --exporter {run.url('exporter')}"
    file = "" if is_found else f" --config.file {shown(run.remediator_file)}"
    trainwarden = shown(script("trainwarden"))
    alerts = readiness.page(run, "alertmanager", ALERTMANAGER_PAGES).replace("script.js", "")
    say(f"\nTrainwarden is up; the remediator's mode is {mode}. {how_to_end} ends it.\n")
    # Of the demo alone an inference server runs.
    used = {name: one for name, one in run.ports.items() if run.demo or name != "inference"}
    for line in ports.moved(used):
        say(f"  port          {line}")
    say(f"  exporter      {run.url('exporter')}/")
    say(f"  remediator    {run.url('remediator')}/")
    say(f"  Prometheus    {run.url('prometheus')}{readiness.page(run, 'prometheus', PAGES)}")
    say(f"  Alertmanager  {run.url('alertmanager')}{alerts}")
    say(f"  from a laptop {ports.forwarding(run.ports)}")
    say(f"  all files     {run.path.absolute()}/ (logs, state, configuration)")
    say(f"  boards        {shown(BOARDS)}/ (for a Grafana of yours)")
    say(f"  in ten lines  {trainwarden} status{exporter}")
    say(f"  the journal   {trainwarden} journal{file}")
    say(f"  the report    {trainwarden} report{file}")
    if run.demo:
        say(f"\nThis is the demo run: {', '.join(run.demo)}. {LEAKING} leaks 6 MiB a second")
        say("and passes its limit of 150 MiB in half a minute. More faults, from another shell:")
        say(f"  echo leak > {shown(run.fault('rollout-0'))}")
        say(f"  echo die > {shown(run.fault('inference'))}")
        say(f"  echo hang > {shown(run.fault('inference'))}")
        say(f"  echo stall > {shown(run.fault('trainer'))}     (named; healed after half an hour)")
    if run.gpus is not None and run.gpus.present:
        say(f"  echo leftover > {shown(run.fault('trainer'))}")
        say(
            "\nIts two GPUs are simulated: no reading of them is of a device. The last fault leaves"
        )
        say("a process behind that holds one of them and belongs to no worker.")
    elif run.gpus is not None:
        say(f"\nThe simulated GPUs are left out: {run.gpus.missing}.")
    restarted = " and restarted" if mode == "act" else ""
    say(f"\nRuns that `trainwarden run` starts are watched{restarted} too, without configuration.")
    if restarted:
        say("A run of `--restart never` is only watched.")
    say(f"\n{LAST_LINE}")


def watch(run: RunFolder, own: list[Child], signals: Signals) -> int:
    """Tell of programs that do not stay up; what the remediator does, its journal tells."""
    supervisord, journal = own
    programs: Mapping[str, supervision.Program] = {}
    journal_end_reported = False
    while True:
        signals.pause(1)
        children.reap(own)
        if supervisord.poll() is not None:
            say(f"supervisord has ended unexpectedly\n{tail(run.log('supervisord'))}")
            return 1
        if journal.poll() is not None and not journal_end_reported:
            journal_end_reported = True
            say(f"`journal --follow` has ended with status {journal.returncode}")
        with suppress(OSError):
            found = supervision.read_programs(run.socket)
            now = {name: each for name, each in found.items() if name in readiness.SERVERS}
            for line in supervision.changes(programs or now, now):
                say(f"{time.strftime('%H:%M:%S')} {line}")
                if "keeps ending" in line:
                    say(tail(run.log(line.split()[0])))
            programs = now


def stop(run: RunFolder, own: list[Child]) -> None:
    """End all that was started: by supervisord first, then what its programs left behind.

    Workers that the remediator started for a run of the user's stay: they are that run.
    """
    say("\nEnding …")
    started = time.monotonic()
    supervisord = own[0]
    for child in own:
        child.terminate()
    with suppress(subprocess.TimeoutExpired):
        supervisord.wait(SHUTDOWN_SECONDS)
    spared = None if run.demo else ACTION_VARIABLE
    survivors = children.end(
        lambda: children.below(os.getpid(), but_not=spared), grace=GRACE_SECONDS
    )
    children.reap(own)
    if survivors:
        say(f"could not be ended: {', '.join(str(each.pid) for each in survivors)}")
    kept = children.below(os.getpid())
    if kept and not survivors:
        say(f"left running, as they are your run: {', '.join(str(each.pid) for each in kept)}")
    took = time.monotonic() - started
    say(f"All that was started has ended, in {took:.1f} s. {shown(run.path)}/ keeps the logs.")


def shown(path: Path) -> str:
    """A path relative to this folder, for display."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def say(line: str) -> None:
    """Print a line, if there still is a terminal: it may be gone, and the work must go on."""
    with suppress(OSError):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
