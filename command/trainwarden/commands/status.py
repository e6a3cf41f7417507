"""Show the open alerts, the actions and the holds of this host."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from contextlib import suppress
from typing import Any

from trainwarden.stack import load_script

EXAMPLES = """\
examples:
  trainwarden status
  trainwarden status --json

exit status: 0 if the remediator answers, 1 if not"""

USUAL = "http://127.0.0.1:10978"
TIMEOUT_SECONDS = 5
LIMIT = 1 << 20
"""Largest response that is read, in bytes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--remediator",
        metavar="URL",
        help="address of the remediator (default: that of the stack that `trainwarden up` runs,"
        f" else {USUAL})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    address = options.remediator or find_remediator()
    status = fetch_json(f"{address.rstrip('/')}/status.json")
    if options.json:
        json.dump(status, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in describe(status))
    return 0


def find_remediator() -> str:
    """Returns the address of the remediator of the running stack.

    Raises ValueError if several stacks run.
    """
    runfolder, addresses = load_script("runfolder"), {}
    for folder in load_script("claims").running_folders():
        with suppress(OSError):  # it has not chosen its ports yet
            chosen = json.loads((folder / runfolder.PORTS_FILE).read_bytes())
            addresses[folder.name] = f"http://127.0.0.1:{chosen['remediator']}"
    if len(addresses) > 1:
        shown = "".join(f"\n  --remediator {url}  {name}" for name, url in addresses.items())
        raise ValueError(f"several stacks run; choose one:{shown}")
    return next(iter(addresses.values()), USUAL)


def fetch_json(url: str) -> Any:
    """Returns the JSON at an http address. Raises OSError or ValueError if there is none."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: not an http address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (above)
            return json.loads(response.read(LIMIT))
    except OSError as error:
        raise OSError(f"{url}: {error}") from error


def describe(status: dict[str, Any]) -> list[str]:
    """Returns the lines that show the remediator's status."""
    lines = [f"remediator ({status['mode']} mode): {status['verdict']}"]
    if needed := status.get("operator_needed"):
        lines.append(needed)
    lines += [_line(one, one["alert"], one["verdict"], one["reason"]) for one in status["alerts"]]
    lines += [_line(one, one["doing"], one["outcome"]) for one in status["actions"]]
    lines += [_line(one, one["text"]) for one in status.get("holds", ())]
    return lines


def _line(entry: dict[str, Any], *parts: str) -> str:
    scope = "/".join(filter(None, (entry["run"], entry["worker"]))) or "everything"
    return f"  {scope}: {'; '.join(filter(None, parts))}"
