"""Readies the volume of the demo run: the exporter's file, folders, and a fault for one worker.

It runs in a container, before the demo's programs, and has nothing but the standard library.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from string import Template

TEMPLATE = Path("/opt/trainwarden/demo/exporter.yml")
INFERENCE = "http://127.0.0.1:8000"
REMEDIATOR = "http://127.0.0.1:10978"
LEAKING = "rollout-1"


def prepare(folder: Path, template: str) -> None:
    """Fill `folder`; `template` is the exporter.yml that is shipped with the demo."""
    programs = str(folder / "demo")
    for place in ("logs", "state", "demo/faults"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    # safe: a regular expression may end in $'
    text = Template(template).safe_substitute(
        user=os.getuid(),
        folder=programs,
        folder_pattern=programs,
        inference_url=INFERENCE,
        remediator_url=REMEDIATOR,
    )
    (folder / "exporter.yml").write_text(text, encoding="utf-8")
    (folder / "demo" / "faults" / LEAKING).write_text("leak\n", encoding="utf-8")


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), TEMPLATE.read_text(encoding="utf-8"))
