"""Show in ten lines how the runs of this host are, and who deals with what is wrong."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwarden.commands.forwarded import NOTHING_RUNS
from trainwarden.run.announcement import list_running
from trainwarden.stack import load_script
from trainwarden.stack.whose import stranger_at
from trainwarden_exporter.runtime.formatting import on_one_line
from trainwarden_exporter.runtime.responsibility import LABEL, NOBODY, OR_LIMIT, REMEDIATOR, YOU

EXAMPLES = """\
examples:
  trainwarden status
  trainwarden status --all
  trainwarden status --watch
  trainwarden status --json

exit status, in the order of a Nagios plugin:
  0  all is well
  1  something is wrong, and you need not act: another does, or it may pass
  2  you are needed: who acts is "You, now"
  3  not known: no exporter answers, or only that of a stack which is not yours"""

USUAL = "http://127.0.0.1:10977"
TIMEOUT_SECONDS = 15
"""Longer than a scrape takes."""
LIMIT = 4 << 20
"""Largest response that is read, in bytes."""
WATCH_SECONDS = 5.0
MAX_LINES = 10
FULL_PROBLEMS = 2
"""Of so many problems, what to do about them comes before the lines of the runs."""
DETAIL = 4
"""Rank of a line that is left out first."""
_GAVE_UP = "TrainingRemediationGaveUp"
"""Reports that the remediator refuses or abandons what another alert is about."""
_COMMAND = re.compile(r"`(trainwarden [^`]+)`")
_SENTENCE_END = re.compile(r"(?<=[.?]) (?=[A-Z`])")
NEEDED = 2
UNKNOWN = 3
CLEAR = "\x1b[H\x1b[2J"
"""Moves the cursor to the first line of a terminal and clears it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--exporter",
        metavar="URL",
        help="address of the exporter (default: that of the stack that `trainwarden up` runs,"
        f" else {USUAL}, unless another account or another place has its stack there)",
    )
    parser.add_argument("--all", action="store_true", help="print all lines, not only ten")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--watch", action="store_true", help=f"print it every {WATCH_SECONDS:g} s until Ctrl-C"
    )


def run(options: argparse.Namespace) -> int:
    try:
        return _run(options)
    except ValueError as error:
        print(f"trainwarden status: {error}", file=sys.stderr)
        return UNKNOWN


def _run(options: argparse.Namespace) -> int:
    found = options.exporter or find_exporter()
    pages = "" if options.exporter else _from_laptop()
    address = f"{(found or USUAL).rstrip('/')}/status.json"
    while True:
        if not found and (stranger := stranger_at(int(USUAL.rpartition(":")[2]))):
            listens = f"{stranger} listens at {USUAL.removeprefix('http://')}"
            shows = f"`trainwarden status --exporter {USUAL}` shows it"
            status = _unknown(_without_stack(f"no stack of yours runs; {listens}: {shows}"))
        else:
            missing = "" if found else _without_stack(NOTHING_RUNS)
            clear = options.watch and sys.stdout.isatty()
            status = show(
                address, missing, as_json=options.json, clear=clear, every=options.all, pages=pages
            )
        if not options.watch:
            return status
        time.sleep(WATCH_SECONDS)


def show(
    address: str, missing: str, *, as_json: bool, clear: bool, every: bool, pages: str = ""
) -> int:
    """Prints the status at `address`, else `missing` or the error, and returns the exit status.

    `every`: print all lines. `pages`: how the pages are seen.
    """
    try:
        status = fetch_json(address)
    except OSError as error:
        return _unknown(missing or str(error))
    lines = () if as_json else describe(status, every=every, pages=pages)
    text = json.dumps(status, indent=2) if as_json else "\n".join(lines)
    print(f"{CLEAR if clear else ''}{text}", flush=True)
    return NEEDED if status["who_acts"] == YOU else int(status["tone"] != "good")


def _unknown(why: str) -> int:
    print(f"trainwarden status: {why}", file=sys.stderr, flush=True)
    return UNKNOWN


def _without_stack(nothing: str) -> str:
    """Returns `nothing`, that no stack runs, with the runs that go on without one."""
    lines = list_running()
    return "\n".join((f"{nothing}{'; these runs go on:' if lines else ''}", *lines))


def _from_laptop() -> str:
    """Returns, in an ssh session, what shows the pages of the only stack on a laptop; else ""."""
    folders = load_script("claims").running_folders() if "SSH_CONNECTION" in os.environ else []
    ports = load_script("ports")
    chosen = ports.read(folders[0]) if len(folders) == 1 else {}
    return f"  pages: {ports.forwarding(chosen)} on your laptop" if chosen else ""


def find_exporter() -> str:
    """Returns the address of the exporter of the running stack; "" if none runs.

    Raises ValueError if several stacks run.
    """
    ports, addresses = load_script("ports"), {}
    for folder in load_script("claims").running_folders():
        if chosen := ports.read(folder):  # else it has not chosen them yet
            addresses[folder.name] = f"http://127.0.0.1:{chosen['exporter']}"
    if len(addresses) > 1:
        shown = "".join(f"\n  --exporter {url}  {name}" for name, url in addresses.items())
        raise ValueError(f"several stacks run; choose one:{shown}")
    return next(iter(addresses.values()), "")


def fetch_json(url: str) -> Any:
    """Returns the JSON at an http address. Raises OSError if there is none, or ValueError."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: not an http address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (above)
            return json.loads(response.read(LIMIT))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)  # of a URLError; of an HTTPError its text
        why = getattr(reason, "strerror", None) or reason
        raise OSError(f"no exporter answers at {url}: {why}") from error


def describe(status: Mapping[str, Any], *, every: bool = False, pages: str = "") -> list[str]:
    """Returns the headline, and what stands behind it: at most MAX_LINES lines, or `every` one.

    The first lines to be left out are the details beyond the second problem.
    """
    # Another program may answer at the address.
    lines = [(rank, on_one_line(text)) for rank, text in _lines(status)]
    lines += [(DETAIL, pages)] if pages else []
    left = len(lines) - MAX_LINES + 1
    if every or left <= 1:
        return [text for _, text in lines]
    ranked = sorted(range(len(lines)), key=lambda number: lines[number][0])
    shown = [lines[number][1] for number in sorted(ranked[: MAX_LINES - 1])]
    return [*shown, f"  and {left} more lines: `trainwarden status --all`"]


def _lines(status: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yields the lines, each with its rank: the lowest are kept longest."""
    yield 0, f"{status['host']}: {status['headline']}"
    yield 0, f"  {LABEL}: {status['who_acts']}. {status['how']}".rstrip()
    for count, (name, step) in enumerate(_first_steps(status)):
        yield 1 if count < FULL_PROBLEMS else DETAIL, f"  first, {name}: {step}"
    for count, problem in enumerate(status["problems"][1:], 1):  # the headline has the first
        rank = 1 if count < FULL_PROBLEMS else DETAIL
        also = f"  also: {problem['text']} ({problem['who_acts']})"
        # Of nothing but an alert, which is left out below: why nobody acts on it.
        over = bool(problem.get("alert")) and problem["who_acts"] == NOBODY
        yield rank, f"{also}. {problem['how']}" if over else also
    for run in status["runs"]:
        yield 2, f"  {run['text']}"
    remediator = status["remediator"]
    if not isinstance(remediator, dict):
        return
    if late := remediator.get("late"):
        yield 3, f"  {late}"
    for hold in remediator["holds"]:
        yield 3, f"  {_scope(hold, 'everything')}: {hold['text']}"
    shown = set()
    for alert in _distinct(remediator["firing"] or (), status["problems"]):
        about = f"{alert['alert']} on {_scope(alert, 'the host')}"
        if (about, alert["handling"]) in shown:  # as of each receiver that is not reached
            continue
        shown.add((about, alert["handling"]))
        who, handling = alert["who_acts"], alert["handling"]
        # The second line has it for what the headline is about.
        known = handling[1:].removesuffix(OR_LIMIT) in status["how"]
        yield DETAIL, f"  {about}: {who if known else _handling(who, handling)}"
    for action in remediator["actions"][:1]:
        about = f"{action['action']} of {_scope(action, 'the host')}"
        yield DETAIL, f"  last action: {about}: {action['outcome']}"


def _first_steps(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what to do first about each alert, without sentences on a command that is shown."""
    shown = set(_COMMAND.findall(status["how"]))
    for name, step in status["first_steps"].items():
        sentences = ((one, set(_COMMAND.findall(one))) for one in _SENTENCE_END.split(step))
        if kept := [one for one, commands in sentences if not commands or commands - shown]:
            yield name, " ".join(kept)
        shown.update(_COMMAND.findall(step))


def _distinct(
    firing: Sequence[dict[str, Any]], problems: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yields the alerts, without that of a refusal beside the alert that was refused.

    Nor what is among the `problems`.
    """
    handled = {(one["run"], one["handling"]) for one in firing if one["alert"] != _GAVE_UP}
    shown = {(one["alert"], one["run"], one["worker"]) for one in problems if one.get("alert")}
    for one in firing:
        if (one["alert"], one["run"], one["worker"]) in shown:
            continue
        if one["alert"] != _GAVE_UP or (one["run"], one["handling"]) not in handled:
            yield one


def _handling(who: str, handling: str) -> str:
    """Returns `The remediator waits: …`, or `You, now (…)`."""
    return f"{who} {handling}" if who == REMEDIATOR else f"{who} ({handling})"


def _scope(entry: dict[str, Any], otherwise: str) -> str:
    return "/".join(filter(None, (entry["run"], entry["worker"]))) or otherwise
