from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_check
import nvidia_smi
from simulated_gpu import GIB, Process, SimulatedBox, build, gpu

SMI = """\
#!/bin/sh
case "$1" in
    --help-query-gpu) cat "$0.fields" ;;
    --query-gpu=*) cat "$0.gpus" ;;
    --query-compute-apps=*) cat "$0.apps" ;;
esac
"""
FIELDS = {
    "name": "Simulated GPU 0",
    "pci.bus_id": "00000000:17:00.0",
    "compute_mode": "Exclusive_Process",
    "mig.mode.current": "Disabled",
    "memory.total": "81920",
    "utilization.gpu": "40",
    "power.draw": "70.00",
    "ecc.errors.corrected.volatile.total": "[N/A]",
}


class FakeSmi:
    """An nvidia-smi that says what it is told, beside a simulated driver that says its own."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        simulated = gpu(
            0,
            compute_mode=3,
            utilization_gpu=0,
            ecc_volatile_corrected=None,
            processes=[Process(pid=self.pid, memory=GIB)],
        )
        box = SimulatedBox(folder / "box", [simulated], library=build(folder / "box"))
        self._path = folder / "bin" / "nvidia-smi"
        self._path.parent.mkdir()
        self._path.write_text(SMI)
        self._path.chmod(0o755)
        path = f"{self._path.parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, **box.environment, "PATH": path}
        self.uuid = simulated.uuid

    def check(self, fields: dict[str, str], apps: str) -> tuple[int, str]:
        answers = {
            "fields": "".join(f'"{name}"\nSaid of it.\n' for name in fields),
            "gpus": ", ".join(["0", *fields.values()]) + "\n",
            "apps": apps,
        }
        for name, text in answers.items():
            self._path.with_name(f"nvidia-smi.{name}").write_text(text)
        command = [sys.executable, gpu_check.__file__, "--collections", "2"]
        result = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        assert result.stderr == ""
        return result.returncode, result.stdout


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path)


def line(said: str, what: str) -> list[str]:
    return next(words for text in said.splitlines() if (words := text.split())[:1] == [what])


def test_what_agrees_is_said_to_and_what_moves_may(smi: FakeSmi) -> None:
    status, said = smi.check(FIELDS, f"{smi.uuid}, {smi.pid}, 1024\n")
    assert status == 0, said
    assert line(said, "memory.total") == ["memory.total", "81920", "81920", "same"]
    assert line(said, "compute_mode")[-1] == "same"
    assert line(said, "utilization.gpu") == ["utilization.gpu", "0", "40", "moves"]
    assert line(said, "ecc.errors.corrected.volatile.total")[-2:] == ["[N/A]", "same"]
    assert line(said, str(smi.pid))[-1] == "same"
    assert "one collection:" in said
    assert "all that must agree does" in said


def test_what_must_agree_and_does_not_is_told(smi: FakeSmi) -> None:
    wrong = {**FIELDS, "memory.total": "40960", "ecc.errors.corrected.volatile.total": "3"}
    status, said = smi.check(wrong, f"{smi.uuid}, 1, 77\n")
    assert status == 1
    assert line(said, "memory.total")[-1] == "differs"
    assert line(said, "ecc.errors.corrected.volatile.total")[-2:] == ["3", "differs"]
    assert line(said, "1") == ["1", "on", smi.uuid, "not", "listed", "77", "MiB", "differs"]
    assert "3 value(s) differ that must not" in said


def test_without_nvidia_smi_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_check.main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpu_check: there is no nvidia-smi on PATH")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "slack", "verdict"),
    [
        (None, "[N/A]", 0, "same"),
        (None, "3", 0, "differs"),
        (3, "[Not Supported]", 0, "differs"),
        ("exclusive_process", "Exclusive_Process", 0, "same"),
        ("default", "Prohibited", 0, "differs"),
        (700.0, "700.00", 0.01, "same"),
        (700.0, "699.00", 0.01, "differs"),
        (34, "90", None, "moves"),
        (34.4, "34", None, "same"),
        (34, "Active", None, "not comparable"),
    ],
)
def test_values_are_judged(
    ours: str | float | None, theirs: str, slack: float | None, verdict: str
) -> None:
    assert nvidia_smi.judge(ours, theirs, slack) == verdict
