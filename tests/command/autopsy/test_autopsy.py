"""Healthy runs, other causes, odd folders, and the command."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import re
import struct
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

import night_folders as nights
from autopsying import LATER, examine, first_cause
from night_folders import NO_TENSORS, areal_line, areal_steps, at, stamp, write
from trainwarden import cli
from trainwarden.autopsy import gather, proving
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.report import render

BEGIN = at("2025-11-10 02:00:00")
TRAINER = "outputs/grpo/logs/root/gsm8k/trial0/trainer.log"


def healthy(folder: Path, *, total: int = 40, end: int = 40) -> Path:
    """A run with an error that it survived, and an earlier attempt."""
    first = areal_steps(BEGIN, range(1, 21), total=total, pace=30)
    refused = [areal_line(BEGIN + 600, "Connection refused, retrying")] * 5
    second = areal_steps(BEGIN + 900, range(11, end + 1), total=total, pace=30)
    done = [areal_line(BEGIN + 1900, "Training completes! Total time elapsed 1900.00.")]
    lines = [*first, *refused, *second, *(done if end == total else [])]
    write(folder / TRAINER, lines, changed=BEGIN + 2000)
    return folder


def test_nothing_wrong_is_found_in_a_run_that_finished(tmp_path: Path) -> None:
    verdict = examine(healthy(tmp_path))
    assert verdict.headline == "Nothing wrong was found: the run finished."
    assert verdict.likely == ()
    data = as_data(verdict)
    assert data["healthy"]
    assert data["finished"]
    assert [error["count"] for error in data["errors"]] == [5]


def test_nothing_wrong_is_found_in_a_run_that_is_active(tmp_path: Path) -> None:
    verdict = examine(healthy(tmp_path, end=39), now=BEGIN + 2060)
    assert verdict.likely == ()
    assert "active within the last minutes" in verdict.headline


def test_a_run_that_stopped_half_way_is_not_called_healthy(tmp_path: Path) -> None:
    verdict = examine(healthy(tmp_path, end=39))
    assert verdict.likely[0].cause.name == "unknown_end"
    assert "step 39 of 40" in render(verdict)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "gpu_out_of_memory",
        ),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("PermissionError: [Errno 13] Permission denied: '/outputs/step_0'", "not_writable"),
        ("OSError: [Errno 5] Input/output error", "disk_error"),
        ("ModuleNotFoundError: No module named 'verifiers'", "environment_missing"),
        ("CUDA error: an illegal memory access was encountered", "gpu_fault"),
        (
            "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)",
            "nccl",
        ),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly", "ray_death"),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        (
            "TimeoutError: Timeout waiting for key 'root/t/update_weights_from_disk/57'",
            "weight_update",
        ),
        (
            "slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2025-11-10T02:30:00 DUE TO TIME LIMIT",
            "ended_from_outside",
        ),
        ("KeyboardInterrupt", "interrupted"),
        ("ValueError: expected a tensor of shape (4, 8)", "exception"),
        ("Killed", "killed"),
    ],
)
def test_the_last_error_names_the_cause(line: str, cause: str, tmp_path: Path) -> None:
    steps = areal_steps(BEGIN, range(1, 21), total=40, pace=30)
    trace = ["Traceback (most recent call last):"] if "Error: " in line else []
    write(tmp_path / TRAINER, [*steps, *trace, line], changed=BEGIN + 620)
    assert first_cause(tmp_path) == cause


CUDA_ERROR = "RuntimeError: CUDA error: device-side assert triggered"


def failing(*spans: tuple[int, int]) -> list[str]:
    """Attempts, each from one step to another, that a CUDA error ends."""
    lines = []
    for first, last in spans:
        lines += [f"step {step}/300 loss 1" for step in range(first, last + 1)]
        lines += ["Traceback (most recent call last):", CUDA_ERROR]
    return lines


def test_cuda_errors_at_one_same_step_speak_for_the_program(tmp_path: Path) -> None:
    write(tmp_path / "train.log", failing((1, 50), (1, 50), (41, 51)))
    verdict = examine(tmp_path)
    assert verdict.likely[0].cause.name == "same_step"
    assert "gpu_fault" not in [one.cause.name for one in verdict.likely]
    assert "a GPU would fail at different steps" in render(verdict)
    assert "CUDA_LAUNCH_BLOCKING=1" in "".join(as_data(verdict)["next_steps"])


@pytest.mark.parametrize(
    "spans",
    [((1, 50), (1, 80), (1, 20)), ((1, 50), (50, 51), (50, 51))],
    ids=["at different steps", "right after each resume"],
)
def test_other_cuda_errors_are_those_of_a_gpu(
    tmp_path: Path, spans: tuple[tuple[int, int], ...]
) -> None:
    write(tmp_path / "train.log", failing(*spans))
    assert first_cause(tmp_path) == "gpu_fault"


def test_a_report_of_several_logs_says_that_they_may_be_those_of_several_runs(
    tmp_path: Path,
) -> None:
    steps = [f"step {step}/300 loss 1" for step in range(1, 51)]
    write(tmp_path / "train.log", [*steps, *steps[:30]])
    assert "`trainwarden autopsy LOG`" not in render(examine(tmp_path))
    write(tmp_path / "train.log.1", steps[:40])
    assert "`trainwarden autopsy LOG`" in render(examine(tmp_path))


def test_an_out_of_memory_kill_in_the_kernel_log_explains_a_silent_end(tmp_path: Path) -> None:
    healthy(tmp_path, end=30)
    killed = stamp(BEGIN + 1500, "%a %b %d %H:%M:%S %Y")
    line = f"[{killed}] Out of memory: Killed process 4711 (python) total-vm:9000kB"
    write(tmp_path / "dmesg.txt", [line], changed=BEGIN + 2000)
    assert first_cause(tmp_path) == "memory_full"


def test_a_boot_right_after_the_last_line_is_a_cause(tmp_path: Path) -> None:
    verdict = examine(healthy(tmp_path, end=30), booted_at=BEGIN + 2100)
    assert verdict.likely[0].cause.name == "reboot"
    assert not any(
        one.cause.name == "reboot" for one in examine(tmp_path, booted_at=BEGIN + 90_000).likely
    )


def test_a_last_save_that_fails_is_a_cause_although_the_training_finished(tmp_path: Path) -> None:
    log = healthy(tmp_path) / TRAINER
    with log.open("a") as file:
        file.write(
            "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
        )
    assert first_cause(tmp_path) == "disk_full"


def test_errors_of_programs_that_end_after_the_run_are_no_cause(tmp_path: Path) -> None:
    log = healthy(tmp_path) / TRAINER
    with log.open("a") as file:
        file.write("Connection refused\n" * 5 + "[rank1]: NCCL communicator was aborted\n")
    assert first_cause(tmp_path) == ""


def test_a_run_that_finished_with_an_error_status_did_not_finish(tmp_path: Path) -> None:
    steps = [f"step {step}/100 loss: 1.0" for step in range(1, 30)]
    write(tmp_path / "train.log", [*steps, "Run finished with exit code 1"])
    assert first_cause(tmp_path) in ("unknown_end", "killed")


def test_a_training_that_prints_the_version_of_linux_is_no_boot(tmp_path: Path) -> None:
    healthy(tmp_path)
    write(tmp_path / "env.log", ["Linux version 6.8.0, worker 3 keys missing"] * 3)
    case = examine(tmp_path).case
    assert case.boots == ()
    assert {error.name for error in case.errors} == {"connection_refused"}


def test_a_loss_that_is_not_finite_is_a_cause(tmp_path: Path) -> None:
    lines = [f"step {step}/100 loss: {1.0 if step < 20 else float('nan')}" for step in range(1, 41)]
    write(tmp_path / "train.log", lines)
    assert first_cause(tmp_path) == "not_finite"


TQDM_BAR = (
    "\rEpoch 0: {share:>3}%|██████████| {step}/20 [00:{draw:02}<00:04, 2.33it/s, v_num=0,"
    " {loss}={value}]"
)
RICH_BAR = (
    "\r\x1b[2KEpoch 0/1 ━━━━━━━━━━━━━━ {step}/20 0:00:{draw:02} • 0:00:03 9.66it/s v_num: 0.000"
    " {loss}: {value}"
)


def draw(bar: str, loss: str, nan_from: int, nan: str) -> str:
    """Output of Lightning, which draws each step three times, the first with the loss before it."""
    out, before = "GPU available: False, used: False\n", "1.234"
    for step in range(1, 21):
        value = nan if step >= nan_from else f"0.{500 - step}"
        for number, shown in enumerate((before, value, value)):
            words = {"share": 5 * step, "step": step, "draw": step + number, "loss": loss}
            out += bar.format(**words, value=shown)
        before = value
    return f"{out}\n`Trainer.fit` stopped: `max_epochs=1` reached."


@pytest.mark.parametrize("loss", ["loss", "train_loss", "train_loss_step"])
@pytest.mark.parametrize(("bar", "nan"), [(TQDM_BAR, "nan.0"), (RICH_BAR, "nan")])
def test_a_loss_that_is_nan_in_a_bar_of_lightning_is_a_cause(
    tmp_path: Path, bar: str, nan: str, loss: str
) -> None:
    write(tmp_path / "train.log", [draw(bar, loss, 12, nan)])
    assert first_cause(tmp_path) == "not_finite"
    (error,) = examine(tmp_path).case.errors
    assert error.count == 9  # of the steps 12 to 20, each once


@pytest.mark.parametrize(("bar", "nan"), [(TQDM_BAR, "nan.0"), (RICH_BAR, "nan")])
def test_one_bad_batch_is_no_cause_however_often_its_bar_is_drawn(
    tmp_path: Path, bar: str, nan: str
) -> None:
    write(tmp_path / "train.log", [draw(bar, "train_loss", 20, nan)])
    case = examine(tmp_path).case
    assert case.not_finite is None
    assert case.errors == ()


@pytest.mark.parametrize("saves", [4, 40])
@pytest.mark.parametrize("end", ["", "KeyboardInterrupt", "Training finished"])
def test_no_resume_begins_after_the_loss_became_nan(tmp_path: Path, saves: int, end: str) -> None:
    """Of more checkpoints than an exporter lists, too."""
    last = 20 * saves
    steps = range(1, last + 1)
    lines = [f"step {step}/{last} loss: {1.0 if step < 40 else float('nan')}" for step in steps]
    write(tmp_path / "train.log", [*lines, *([end] if end else [])])
    for step in range(20, last + 1, 20):
        path = tmp_path / f"out/ckpt_{step}.pt"
        write(path, [f"weights of step {step}"])
        os.utime(path, (1e9 + step, 1e9 + step))
    shown = render(examine(tmp_path))
    glance = shown.partition("## Likely")[0]
    assert "| **Last good checkpoint** | `ckpt_20.pt`, step 20, " in glance
    assert "newer ones are from after step 39, the last with a finite loss |" in glance
    assert "| **A resume begins at** | step 21" in glance
    resumes = [line for line in shown.splitlines() if line.startswith("- Resume from")]
    last_good = ["- Resume from the last good checkpoint."] if end == "KeyboardInterrupt" else []
    own = "- Resume from the checkpoint of step 20: the next step is 21."
    assert resumes == [*last_good, own]
    assert f"ckpt_{last}" not in shown
    data = as_data(examine(tmp_path))
    assert (data["checkpoint"]["step"], data["resume_step"]) == (20, 21)
    assert data["loss_finite_until"] == 39


def test_a_loss_that_was_nan_in_an_earlier_attempt_rules_out_no_checkpoint(tmp_path: Path) -> None:
    for number, (first, last, nan_from) in enumerate(((1, 60, 40), (21, 80, 1000))):
        lines = [
            f"2026-01-01 0{number}:{step // 60:02}:{step % 60:02} step {step}/99 loss:"
            f" {1.0 if step < nan_from else float('nan')}"
            for step in range(first, last + 1)
        ]
        write(tmp_path / f"train{number}.log", lines)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/ckpt_80.pt").write_bytes(pickle.dumps({"weights": [0.5]}))
    os.utime(tmp_path / "out/ckpt_80.pt", (1e9, 1e9))
    assert "| **Last good checkpoint** | `ckpt_80.pt`, step 80" in render(examine(tmp_path))


def save_by(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        write(folder / f"out/{name}", ["weights"])
        os.utime(folder / f"out/{name}", (1e9 + number, 1e9 + number))


@pytest.mark.parametrize(
    ("names", "shown", "resume", "step"),
    [
        (("epoch_6.pt", "epoch_7.pt"), "`epoch_7.pt`, epoch 7, ", "that checkpoint; its", None),
        (
            ("epoch=2-val_loss=0.61.ckpt", "epoch=3-val_loss=0.52.ckpt"),
            "`epoch=3-val_loss=0.52.ckpt`, epoch 3, ",
            "that checkpoint; its",
            None,
        ),
        (
            ("checkpoint-epoch-6", "checkpoint-epoch-7"),
            "`checkpoint-epoch-7`, epoch 7, ",
            "that checkpoint; its",
            None,
        ),
        (
            ("epoch=1-step=150.ckpt", "epoch=2-step=300.ckpt"),
            "`epoch=2-step=300.ckpt`, step 300, ",
            "step 301; steps",
            300,
        ),
    ],
)
def test_the_epoch_in_the_name_of_a_checkpoint_is_no_step(
    tmp_path: Path, names: tuple[str, ...], shown: str, resume: str, step: int | None
) -> None:
    write(tmp_path / "train.log", [f"step {step}/900 loss: 1.0" for step in range(1, 701)])
    save_by(tmp_path, *names)
    verdict = examine(tmp_path)
    report, data = render(verdict), as_data(verdict)
    assert f"| **Last good checkpoint** | {shown}" in report
    assert f"| **A resume begins at** | {resume}" in report
    assert data["checkpoint"]["step"] == step
    assert data["resume_step"] == (None if step is None else step + 1)
    assert ("Resume from the last good checkpoint." in data["next_steps"]) == (step is None)
    assert "Resume from the checkpoint of step 7" not in report


def test_of_checkpoints_by_epoch_none_is_known_to_be_from_before_the_loss_became_nan(
    tmp_path: Path,
) -> None:
    steps = range(1, 701)
    lines = [f"step {one}/900 loss: {1.0 if one < 40 else float('nan')}" for one in steps]
    write(tmp_path / "train.log", lines)
    save_by(tmp_path, "epoch_6.pt", "epoch_7.pt")
    report = render(examine(tmp_path))
    unclear = "which of them are from before the loss was NaN or infinite is not known"
    assert f"| **Last good checkpoint** | {unclear} |" in report
    assert "| **A resume begins at** | not known |" in report
    assert "Resume from" not in report


def test_a_loss_in_the_name_of_a_checkpoint_is_no_step(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [f"step {step}/900 loss: 1.0" for step in range(1, 701)])
    save_by(tmp_path, "ckpt-val_loss=0.61.ckpt", "ckpt-val_loss=0.52.ckpt")
    assert as_data(examine(tmp_path))["resume_step"] in (None, 1)


def test_a_lost_worker_of_a_data_loader_does_not_prove_that_memory_was_full(tmp_path: Path) -> None:
    lines = [f"step {step}/900 loss: 1.0" for step in range(1, 41)]
    lost = "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. "
    write(tmp_path / "train.log", [*lines, lost])
    assert first_cause(tmp_path) == "killed"


def test_an_incomplete_checkpoint_is_not_the_one_to_resume_from(tmp_path: Path) -> None:
    for step in (100, 200):
        folder = tmp_path / f"out/checkpoint-{step}"
        write(folder / "model.safetensors", [NO_TENSORS])
        state = json.dumps({"global_step": step, "max_steps": 1000})
        write(folder / "trainer_state.json", [state if step == 100 else state[:9]])
    write(tmp_path / "out/train.log", ["{'loss': 0.5, 'epoch': 0.1}"] * 3)
    data = as_data(examine(tmp_path))
    assert data["framework"] == "trl"
    assert data["resume_step"] == 101
    assert "`checkpoint-200` after it is **incomplete**" in render(examine(tmp_path))


def weights(path: Path, last: float) -> None:
    """A checkpoint that is one safetensors file, with so many numbers that NaN is looked for."""
    values = array("f", [0.5] * 2000 + [last]).tobytes()
    header = {"w": {"dtype": "F32", "shape": [2001], "data_offsets": [0, len(values)]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
    moment = 1e9 + int("".join(filter(str.isdecimal, path.stem)))
    os.utime(path, (moment, moment))


def test_a_checkpoint_of_weights_that_are_nan_is_not_good(tmp_path: Path) -> None:
    """Without a log, only the content shows it, of more checkpoints than are read at first."""
    for step in range(10, 200, 10):
        weights(tmp_path / f"ckpt_{step}.safetensors", math.nan if step > 80 else 2.0)
    verdict = examine(tmp_path)
    data, shown = as_data(verdict), render(verdict)
    assert (data["checkpoint"]["name"], data["resume_step"]) == ("ckpt_80.safetensors", 81)
    assert data["checkpoint"]["state"] == "proved"
    assert len(data["damaged_checkpoints"]) == 11
    assert "| **Last good checkpoint** | `ckpt_80.safetensors`, step 80" in shown
    assert "`ckpt_190.safetensors` after it is **damaged** (w has numbers that are not" in shown
    assert "and so are 10 others" in shown
    assert "| **A resume begins at** | step 81" in shown


def test_without_a_sound_checkpoint_a_resume_begins_at_the_beginning(tmp_path: Path) -> None:
    weights(tmp_path / "ckpt_10.safetensors", math.nan)
    shown = render(examine(tmp_path))
    assert "checkpoint** | none is sound: `ckpt_10.safetensors` is **damaged**" in shown
    assert "| **A resume begins at** | the beginning" in shown


@pytest.mark.parametrize(
    ("last", "head", "causes"),
    [
        (1.0, b"", []),
        (math.nan, b"", ["not_finite"]),
        (1.0, struct.pack("<Q", 9), ["damaged"]),
    ],
)
def test_a_run_that_finished_with_a_damaged_checkpoint_is_not_healthy(
    tmp_path: Path, last: float, head: bytes, causes: list[str]
) -> None:
    write(tmp_path / "train.log", [f"step {step}/20 loss: 0.5" for step in range(1, 21)])
    weights(tmp_path / "ckpt_10.safetensors", 1.0)
    weights(tmp_path / "ckpt_20.safetensors", last)
    with (tmp_path / "ckpt_20.safetensors").open("r+b") as file:
        file.write(head)
    os.utime(tmp_path / "ckpt_20.safetensors", (1e9 + 20, 1e9 + 20))
    verdict = examine(tmp_path)
    assert [one.cause.name for one in verdict.likely] == causes
    assert as_data(verdict)["healthy"] is not bool(causes)
    assert ("ckpt_20.safetensors: " in render(verdict)) == bool(causes)


def test_a_checkpoint_that_was_not_read_is_not_called_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "PROOF_SECONDS", 0.0)
    weights(tmp_path / "ckpt_10.safetensors", 1.0)
    shown = render(examine(tmp_path))
    assert "| **Last complete checkpoint** | `ckpt_10.safetensors`, step 10" in shown
    assert "its content is unproved" in shown


def test_checkpoints_in_folders_of_the_same_name_are_all_read(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "out").mkdir(parents=True)
        for step in (10, 20):
            (tmp_path / folder / "out" / f"model-{step}.bin").write_bytes(b"weights")
    found = examine(tmp_path).case.material.checkpoints
    assert [one.spec.layout.name for one in found] == ["out", "out-2"]


def test_a_proposal_that_is_not_valid_is_no_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "train.log", [f"step {step}/100 loss: 1.0" for step in range(1, 50)])
    monkeypatch.setattr(
        gather, "_proposed_config", lambda _: ("run", "runs: [{name: run, colour: red}]")
    )
    verdict = examine(tmp_path)
    assert verdict.case.last_step == 49
    assert "Not read: `checkpoints and rollouts: " in render(verdict)


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    verdict = examine(tmp_path)
    assert verdict.headline == "The folder holds no log and no checkpoint of a run."
    assert verdict.likely == ()
    assert "0 logs" in render(verdict)
    assert as_data(verdict)["healthy"] is False


def test_binary_content_is_not_read_as_a_log(tmp_path: Path) -> None:
    noise = os.urandom(300_000)
    (tmp_path / "train.log").write_bytes(noise)
    (tmp_path / "core").write_bytes(b"\x7fELF" + b"CUDA error: out of memory\n" + noise)
    assert examine(tmp_path).case.logs == ()


def test_half_written_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    lines = [f"step {step}/100 loss: 0.5\n" for step in range(1, 3000)]
    packed = gzip.compress("".join(lines).encode())
    (tmp_path / "train.log.1.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "train.log").write_bytes(b"step 5/100 loss: 0.5\nstep 6/100 loss: 0.4\nRuntimeErr")
    case = examine(tmp_path).case
    assert {log.name for log in case.logs} == {"train.log", "train.log.1.gz"}
    assert [one.last_step for one in case.attempts if one.file == "train.log"] == [6]


def test_a_folder_with_pipes_links_and_unreadable_files_is_read(tmp_path: Path) -> None:
    healthy(tmp_path)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.log").symlink_to(tmp_path / "absent")
    assert examine(tmp_path).case.finished


def test_the_folder_is_left_as_it_is_and_no_pickle_is_loaded(tmp_path: Path) -> None:
    nights.inference_down(tmp_path)
    marker = tmp_path / "marker"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (marker,))

    for name in ("trap.pkl", "rank_0.pt", "trap.log"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))

    def content() -> dict[str, tuple[int, int]]:
        files = (path for path in tmp_path.rglob("*"))
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = content()
    render(examine(tmp_path))
    assert content() == before
    assert not marker.exists()


def test_secrets_and_markdown_in_logs_do_not_reach_the_report(tmp_path: Path) -> None:
    line = "ValueError: token=hf_abcdefghijklmnop ```\n# Forged\n| a | b |"
    write(tmp_path / "train.log", ["step 1/9 loss: 1", "step 2/9 loss: 1", line])
    report = render(examine(tmp_path))
    assert "hf_abcdefghijklmnop" not in report
    assert "\n# Forged" not in re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", report)


def test_an_autopsy_of_one_log_needs_no_folder(tmp_path: Path) -> None:
    log = write(tmp_path / "slurm-7.out", [" iteration  10/ 100 | lm loss: 9.1"] * 2)
    write(tmp_path / "other.log", ["CUDA out of memory. Tried to allocate"])
    assert [log.name for log in examine(log).case.logs] == ["slurm-7.out"]


def test_the_command_prints_markdown_or_json_and_says_by_its_status_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["autopsy", str(healthy(tmp_path / "good"))]) == 0
    assert capsys.readouterr().out.startswith("# Autopsy of ")
    assert cli.main(["autopsy", "--json", str(nights.gpu_held(tmp_path / "bad"))]) == 3
    assert json.loads(capsys.readouterr().out)["causes"][0]["name"] == "gpu_held"
    assert cli.main(["autopsy", str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err


def test_the_command_runs_without_a_configuration(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainwarden", "autopsy", str(healthy(tmp_path))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert LATER > BEGIN
