"""Logs as programs of many kinds leave them: the first line of the report is true and says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopsying import examine
from night_folders import write
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict

STEPS = """
import os, sys, signal
for step in range(1, 61):
    print(f"step {step}/200 loss 0.5", flush=True)
"""


def ended(folder: Path, shell: str, code: str) -> Verdict:
    """Examines the log of a program that runs `code` after 60 of 200 steps, below a shell."""
    (folder / "train.py").write_text(STEPS + code)
    with (folder / "train.log").open("wb") as log:
        command = ["bash", "-c", f"{sys.executable} train.py {shell}"]
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False)
    (folder / "train.py").unlink()
    return examine(folder)


LOGGED = "2026-11-30 17:49:33 - ERROR - train - no validation set"
SHOWN = '; echo "exit code $?"'


@pytest.mark.parametrize(
    ("shell", "code", "headline"),
    [
        ("", "{}['input_ids']", "An exception ended it: KeyError: 'input_ids'."),
        (
            "",
            f"print('{LOGGED}'); sys.exit(3)",
            f"It ended after an error that it logged: {LOGGED}.",
        ),
        ("", "os.kill(os.getpid(), 9)", "It ended without a reason in its files."),
        ("; true", "os.kill(os.getpid(), 9)", "A process was killed or crashed."),
        (SHOWN, "os._exit(137)", "A process was killed or crashed."),
        (SHOWN, "os._exit(139)", "A process was killed or crashed."),
        (SHOWN, "os._exit(130)", "It was stopped by hand."),
        (
            SHOWN,
            "signal.signal(15, signal.SIG_DFL); os._exit(143)",
            "It was ended from outside: by the scheduler, the platform or a signal.",
        ),
        (SHOWN, "os._exit(1)", "It ended without a reason in its files."),
        (
            "",
            "raise RuntimeError('PytorchStreamWriter failed writing file data/12: file write')",
            "A checkpoint could not be written, as on a full disk or above a quota.",
        ),
        ("", "open('/dev/full', 'w').write('x' * 100000)", "A disk was full."),
    ],
)
def test_the_first_line_names_how_a_real_process_ended(
    tmp_path: Path, shell: str, code: str, headline: str
) -> None:
    verdict = ended(tmp_path, shell, code)
    assert verdict.headline == headline
    assert verdict.case.last_step == 60
    assert len(verdict.likely) == 1


def test_the_end_of_the_log_is_shown_with_one_state_of_a_bar(tmp_path: Path) -> None:
    bars = [f"{step:3}%|x| {step}/100 [00:01<00:01, 9.9it/s]" for step in range(1, 60)]
    lines = ["loading", "\r".join(bars), "token=hf_abcdefghijklmnop", "it hangs here"]
    write(tmp_path / "train.log", lines)
    report = render(examine(tmp_path))
    shown = report.partition("## The last lines of `train.log`")[2].partition("```text\n")[2]
    end = ["loading", bars[-1].strip(), "token=[redacted]", "it hangs here"]
    assert shown.partition("\n```")[0].splitlines() == end
    write(tmp_path / "train.log", [*lines, "Training finished"])
    assert "The last lines" not in render(examine(tmp_path))


def test_a_log_without_an_end_says_with_what_it_ends(tmp_path: Path) -> None:
    lines = [f"epoch 1 iter {step} loss 0.5" for step in range(60)]
    write(tmp_path / "train.log", [*lines, "done"])
    verdict = examine(tmp_path)
    assert verdict.headline == "No error was found; train.log ends with: done"
    assert verdict.likely == ()
    write(tmp_path / "train.log", lines)
    (likely,) = examine(tmp_path).likely
    assert likely.evidence[0][1].line == lines[-1]


def test_an_error_that_steps_followed_did_not_end_it(tmp_path: Path) -> None:
    lines = [f"step {step} loss 0.5" for step in range(60)]
    write(tmp_path / "train.log", [*lines[:50], "[ERROR] upload failed", *lines[50:]])
    assert [one.cause.name for one in examine(tmp_path).likely] == ["unknown_end"]


@pytest.mark.parametrize(
    ("line", "finished"),
    [
        ("Epoch {}/10 - train_loss: 0.91 - val_acc: 0.80", True),
        ("epoch [{}/10] loss=0.91", True),
        ("Epoch {}/10", False),
        ("Epoch {}/11 - train_loss: 0.91", False),
    ],
)
def test_the_results_of_the_last_epoch_are_the_end(
    tmp_path: Path, line: str, *, finished: bool
) -> None:
    lines = [line.format(epoch) for epoch in range(1, 11)]
    write(tmp_path / "train.log", lines)
    verdict = examine(tmp_path)
    assert verdict.case.finished is finished
    assert [one.cause.name for one in verdict.likely] == ([] if finished else ["unknown_end"])
    trace = ["Traceback (most recent call last):", "ValueError: no model to save"]
    write(tmp_path / "train.log", [*lines, *trace])
    assert not examine(tmp_path).case.finished


def test_a_last_epoch_that_has_just_begun_is_no_end(tmp_path: Path) -> None:
    lines = [
        line
        for epoch in range(1, 4)
        for line in (
            f"Epoch {epoch}/3 lr 0.1",
            *(f"step {step}/200 loss 0.5" for step in range(1, 201 if epoch < 3 else 60)),
        )
    ]
    write(tmp_path / "train.log", lines)
    assert not examine(tmp_path).case.finished


def test_of_a_loss_that_is_nan_without_steps_no_checkpoint_is_known_to_be_good(
    tmp_path: Path,
) -> None:
    lines = [f"{{'loss': {'nan' if n > 5 else 0.5}, 'epoch': 0.{n}}}" for n in range(1, 9)]
    write(tmp_path / "train.log", [*lines, "{'train_runtime': 12.1, 'epoch': 1.0}"])
    for step in (20, 40):
        write(tmp_path / f"out/ckpt_{step}.pt", ["weights"])
        os.utime(tmp_path / f"out/ckpt_{step}.pt", (1e9 + step, 1e9 + step))
    verdict = examine(tmp_path)
    assert as_data(verdict)["checkpoint"] is None
    report = render(verdict)
    assert "| **A resume begins at** | not known |" in report
    assert "Resume from" not in report
