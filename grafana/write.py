"""Writes the dashboards, as Grafana loads them."""

from __future__ import annotations

import sys
from pathlib import Path

from boards import BOARDS
from boards.board import encoded

FOLDER = Path(__file__).parent / "dashboards"


def files() -> dict[str, str]:
    """The text of each file in `FOLDER`."""
    return {board.file: encoded(board.model(BOARDS)) for board in BOARDS}


def main() -> int:
    """Write the files, and remove those of boards that are no more.

    With `--check`, only say whether they are as they would be written.
    """
    wanted = files()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    if "--check" in sys.argv[1:]:
        stale = sorted(
            name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)
        )
        for name in stale:
            print(f"{FOLDER / name}: stale; run `python grafana/write.py`", file=sys.stderr)
        return min(len(stale), 1)
    for name in there.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
