"""Writes the configuration of an Alertmanager that serves many boxes, from the shipped one.

`write_alertmanager.py --webhook box-1=https://box-1:10978 --output alertmanager.yml`: a box that
is named so is sent its own alerts, each with a token of its own. All others pull theirs, and need
nothing here. What reaches people, and what mutes what, stays as it is shipped.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ruleset import RULES, dumped

REMEDIATOR, NOBODY = "trainwarden-remediator", "nobody"
"""Receivers of the shipped configuration."""
HEAD = "# Written by deploy/write_alertmanager.py from rules/alertmanager.yml: edit that one.\n"


def for_boxes(shipped: Mapping[str, Any], webhooks: Mapping[str, str]) -> dict[str, Any]:
    """The configuration for these boxes: their `instance`, and where their remediator listens."""
    settings = copy.deepcopy(dict(shipped))
    (sender,) = (one for one in settings["receivers"] if one["name"] == REMEDIATOR)
    others = [one for one in settings["receivers"] if one is not sender]
    own = {box: _webhook(sender, box, url) for box, url in webhooks.items()}
    settings["receivers"] = [
        *others,
        *({"name": _receiver(box), "webhook_configs": [webhook]} for box, webhook in own.items()),
    ]
    if own:  # the heartbeat is for all of them at once
        settings["receivers"].append({"name": REMEDIATOR, "webhook_configs": list(own.values())})
    routes = []
    for route in settings["route"]["routes"]:
        if route.get("receiver") != REMEDIATOR:
            routes.append(route)
        elif not route.get("continue"):
            routes.append(route if own else {**route, "receiver": NOBODY})
        else:
            routes += [_of(route, box) for box in own]
    settings["route"]["routes"] = routes
    return settings


def _receiver(box: str) -> str:
    return f"{REMEDIATOR}-{box}"


def _webhook(sender: Mapping[str, Any], box: str, url: str) -> dict[str, Any]:
    (shipped,) = sender["webhook_configs"]
    webhook: dict[str, Any] = {**copy.deepcopy(shipped), "url": f"{url.rstrip('/')}/webhook"}
    authorization = webhook["http_config"]["authorization"]
    authorization["credentials_file"] += f"-{box}"
    if url.startswith("https:"):
        webhook["http_config"]["tls_config"] = {"ca_file": "secrets/ca.crt"}
    return webhook


def _of(route: Mapping[str, Any], box: str) -> dict[str, Any]:
    matchers = [*route["matchers"], f'instance="{box}"']
    return {**route, "matchers": matchers, "receiver": _receiver(box)}


def webhook(word: str) -> tuple[str, str]:
    """`("box-1", "https://box-1:10978")` of `box-1=https://box-1:10978`. Raises ValueError."""
    box, _, url = word.partition("=")
    if not box or any(sign in box for sign in '"\\/') or not url.startswith(("http:", "https:")):
        raise ValueError(f"not a box and its URL, NAME=http…: {word!r}")
    return box, url


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; 0 when all is well."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--webhook", action="append", default=[], metavar="NAME=URL", help="a box that listens"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    chosen = parser.parse_args(arguments)
    try:
        webhooks = dict(map(webhook, chosen.webhook))
        shipped = yaml.safe_load((RULES / "alertmanager.yml").read_text(encoding="utf-8"))
        text = HEAD + dumped(for_boxes(shipped, webhooks))
        chosen.output.write_text(text, encoding="utf-8")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
