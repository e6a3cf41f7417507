"""The plain training loop of examples/plain runs without PyTorch, resumes, and leaks on request."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "plain" / "train.py"


def train(folder: Path, *arguments: str) -> list[str]:
    """Runs the example to its end; returns the lines that it prints."""
    done = subprocess.run(
        [sys.executable, TRAIN, "--step-seconds", "0", "--save-every", "5", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_it_makes_its_steps_and_resumes_from_the_newest_checkpoint(tmp_path: Path) -> None:
    lines = train(tmp_path, "--steps", "12")
    assert lines[0].startswith("step 1/12 loss ")
    assert lines[11:] == [lines[11], "training finished"]
    assert lines[11].startswith("step 12/12 loss ")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step_10.pt",
        "step_5.pt",
    ]

    lines = train(tmp_path, "--steps", "13")
    assert lines[0] == "resumed from step 10"
    assert [line.split()[1] for line in lines[1:-1]] == ["11/13", "12/13", "13/13"]


def test_with_a_leak_it_holds_more_after_each_step(tmp_path: Path) -> None:
    script = (
        "import runpy, sys\n"
        f"sys.argv = [{str(TRAIN)!r}, '--step-seconds', '0', '--steps', '20', *sys.argv[1:]]\n"
        f"runpy.run_path({str(TRAIN)!r}, run_name='__main__')\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )

    def peak(*arguments: str) -> int:
        """KiB of memory at most."""
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
        )
        return int(re.findall(r"VmHWM:\s+(\d+) kB", done.stdout)[0])

    assert peak("--leak") - peak("--out", "others") > 20 * 8 * 1024 * 0.9
