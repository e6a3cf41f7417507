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
    """An nvidia-smi with configured output, beside a simulated driver with output of its own."""

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
            "fields": "".join(f'"{name}"\nIts description.\n' for name in fields),
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


def line(output: str, what: str) -> list[str]:
    return next(words for text in output.splitlines() if (words := text.split())[:1] == [what])


def test_agreement_is_reported_and_moving_values_may_differ(smi: FakeSmi) -> None:
    status, output = smi.check(FIELDS, f"{smi.uuid}, {smi.pid}, 1024\n")
    assert status == 0, output
    assert line(output, "memory.total") == ["memory.total", "81920", "81920", "same"]
    assert line(output, "compute_mode")[-1] == "same"
    assert line(output, "utilization.gpu") == ["utilization.gpu", "0", "40", "moves"]
    assert line(output, "ecc.errors.corrected.volatile.total")[-2:] == ["[N/A]", "same"]
    assert line(output, str(smi.pid))[-1] == "same"
    assert "one collection:" in output
    assert "all that must agree does" in output


def test_a_disagreement_is_reported(smi: FakeSmi) -> None:
    wrong = {**FIELDS, "memory.total": "40960", "ecc.errors.corrected.volatile.total": "3"}
    status, output = smi.check(wrong, f"{smi.uuid}, 1, 77\n")
    assert status == 1
    assert line(output, "memory.total")[-1] == "differs"
    assert line(output, "ecc.errors.corrected.volatile.total")[-2:] == ["3", "differs"]
    assert line(output, "1") == ["1", "on", smi.uuid, "not", "listed", "77", "MiB", "differs"]
    assert "3 value(s) differ that must not" in output


def test_without_nvidia_smi_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_check.main([]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gpu_check: there is no nvidia-smi on PATH")
    assert output.err.count("\n") == 1


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
