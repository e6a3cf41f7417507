"""Draws each board from what a running Prometheus answers, one picture a board.

    python grafana/preview.py http://127.0.0.1:9090 docs/pictures --minutes 10

The pictures approximate what Grafana shows, so that a board can be looked at without one.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from previewing import drawing
from previewing.answered import Answered
from previewing.asking import (
    Chosen,
    Prometheus,
    RefusedError,
    Window,
    answer,
    choose_all,
    filled,
)
from previewing.sheet import Mark, Place, Sheet

DASHBOARDS = Path(__file__).parent / "dashboards"
WIDTH, UNIT, GAP = 1500, 34, 6
"""Pixels: the whole picture, one unit of height, between two panels."""
COLUMNS = 24
SHADES = 255
"""Colours of a picture: few enough to keep it small."""


def main() -> int:
    """Draw the boards. Returns the exit status: 1 when Prometheus does not answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("url", help="where Prometheus listens")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--minutes", type=float, default=10, help="how far back they look")
    parser.add_argument("--board", action="append", help="the uid of a board; all when not given")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    prometheus, now = Prometheus(options.url), time.time()
    window = Window(now - 60 * options.minutes, now)
    try:
        for path in sorted(DASHBOARDS.glob("*.json")):
            if options.board and path.stem not in options.board:
                continue
            model = json.loads(path.read_text(encoding="utf-8"))
            picture = options.folder / f"{path.stem}.png"
            draw(model, prometheus, window, picture)
            print(f"{picture}: {picture.stat().st_size >> 10} KiB")
    except RefusedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def draw(model: Mapping[str, Any], prometheus: Prometheus, window: Window, path: Path) -> None:
    """Draw one dashboard into a file. Raises RefusedError."""
    chosen = choose_all(model, prometheus, window)
    bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in model["panels"])
    marks = list(_marks(model, prometheus, window, chosen))
    sheet = Sheet(WIDTH, bottom * UNIT + GAP, window, marks)
    for panel in model["panels"]:
        if panel["type"] == "row":
            sheet.heading(panel["title"], _place(panel))
        else:
            answers = [
                answer(t, prometheus, window.of(panel), chosen.values)
                for t in panel.get("targets", ())
            ]
            drawing.panel(sheet, Answered(panel, answers), _place(panel))
    memory = io.BytesIO()
    sheet.figure.savefig(memory, format="png", facecolor=sheet.figure.get_facecolor())
    Image.open(memory).convert("RGB").quantize(SHADES).save(path, optimize=True)


def _place(panel: Mapping[str, Any]) -> Place:
    position, column = panel["gridPos"], WIDTH / COLUMNS
    return Place(
        left=position["x"] * column + GAP / 2,
        top=position["y"] * UNIT + GAP,
        width=position["w"] * column - GAP,
        height=position["h"] * UNIT - GAP,
    )


def _marks(
    model: Mapping[str, Any], prometheus: Prometheus, window: Window, chosen: Chosen
) -> Iterator[Mark]:
    """Where each annotation begins that is shown by default."""
    for annotation in model["annotations"]["list"]:
        if not annotation["enable"]:
            continue
        query = filled(annotation["expr"], chosen.values)
        for series in prometheus.over(query, window):
            if annotation.get("useValueForTime"):
                moments = {value / 1000 for _, value in series.points}
            else:
                moments = {series.points[0][0]}
            yield from (Mark(moment, annotation["iconColor"]) for moment in moments)


if __name__ == "__main__":
    sys.exit(main())
