"""The checkpoints of a run before its start, and the command that lists them."""

from __future__ import annotations

import json
import os
import struct
import time
from datetime import datetime
from pathlib import Path

import pytest

from trainwarden_exporter.__main__ import main
from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.state_store import LogStateStore
from trainwarden_exporter.preflight.checkpoints import NOT_KNOWN_SINCE, check_checkpoints
from trainwarden_exporter.preflight.report import PreflightContext
from trainwarden_exporter.run_specs import log_specs

HOUR_AGO = 3600.0
_HEADER = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
TENSORS = struct.pack("<Q", len(_HEADER)) + _HEADER + struct.pack("<4f", 1, 2, 3, 4)
DAMAGE = "model.safetensors: 3 bytes are missing at its end"


def save(path: Path, step: int, *, cut: int = 0) -> None:
    folder = path / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(TENSORS[: len(TENSORS) - cut])
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for file in folder.iterdir():
        moment = file.stat().st_mtime - HOUR_AGO + step
        os.utime(file, (moment, moment))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "exporter.yml"
    file.write_text("runs: [{name: demo, framework: trl, path: out}]\nruns_folder: runs.d\n")
    return file


def context(path: Path) -> PreflightContext:
    run = {"name": "demo", "framework": "trl", "path": str(path)}
    return PreflightContext(Config.model_validate({"runs": [run]}))


def test_a_run_without_checkpoints_needs_no_check(tmp_path: Path) -> None:
    assert check_checkpoints(context(tmp_path)) is None


def test_a_damaged_checkpoint_that_a_resume_would_take_is_a_warning(tmp_path: Path) -> None:
    save(tmp_path, 10)
    finding = check_checkpoints(context(tmp_path))
    assert finding is not None
    assert (finding.result, finding.observed) == (
        "ok",
        "1 checkpoint proved, the newest: checkpoint-10",
    )
    save(tmp_path, 20, cut=3)
    finding = check_checkpoints(context(tmp_path))
    assert finding is not None
    assert finding.result == "warn"
    assert any("3 bytes are missing" in line for line in finding.details)
    assert finding.details[-1] == "  Newest proved checkpoint: checkpoint-10"


def test_the_command_lists_each_checkpoint_with_its_proof(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "out", 10)
    command = ["checkpoints", "demo", f"--config.file={config_file}"]
    assert main(command) == 0
    assert "checkpoint-10" in capsys.readouterr().out
    save(tmp_path / "out", 20, cut=3)
    assert main(command) == 1
    first, how, second, damage, third, explained, *rest = capsys.readouterr().out.splitlines()
    assert first == f"run demo, default: {tmp_path}/out"
    assert how.startswith("  provable: header, offsets and size of safetensors; every shard of its")
    assert second.split()[:2] == ["20", "checkpoint-20"]
    assert second.endswith("damaged")
    assert damage.strip() == f"truncated: {DAMAGE}"
    assert third.endswith("proved")
    assert explained.startswith("  proved: its content was read")
    assert rest == [
        f"  A resume would take a damaged checkpoint: checkpoint-20: {DAMAGE} (truncated)",
        "  Newest proved checkpoint: checkpoint-10",
    ]
    assert not list(tmp_path.glob("**/proofs-*"))

    assert main([*command, "--json"]) == 1
    (kind,) = json.loads(capsys.readouterr().out)
    assert (kind["run"], kind["checkpoint"], kind["is_copy"]) == ("demo", "default", False)
    assert kind["newest_proved"] == f"{tmp_path}/out/checkpoint-10"
    assert kind["resume_problem"] == f"checkpoint-20: {DAMAGE} (truncated)"
    damaged, proved = kind["checkpoints"]
    assert (damaged["step"], damaged["state"], proved["state"]) == (20, "damaged", "proved")
    assert damaged["damages"] == [{"kind": "truncated", "text": DAMAGE}]
    assert proved["size"] == sum(one.stat().st_size for one in Path(proved["path"]).iterdir())


def test_many_damages_of_one_kind_are_one_line_of_a_checkpoint(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "out", 20, cut=3)
    found = tmp_path / "out" / "checkpoint-20"
    (cut,) = found.glob("*.safetensors")
    other, long_ago = cut.with_name("other.safetensors"), time.time() - 3600
    other.write_bytes(cut.read_bytes())
    for path in (cut, other, found):
        os.utime(path, (long_ago, long_ago))
    assert main(["checkpoints", "demo", f"--config.file={config_file}"]) == 1
    lines = [one.strip() for one in capsys.readouterr().out.splitlines()]
    (damage,) = (one for one in lines if one.startswith("truncated: "))
    assert damage.endswith("3 bytes are missing at its end (and 1 more)")


def follow(config_file: Path) -> None:
    """Reads the run's log, and keeps what is known of it, as an exporter that is restarted."""
    config = load_config(config_file)
    (spec,) = log_specs(config.runs[0])
    store = LogStateStore(config.state_folder)
    follower = LogFollower(spec, store.load("demo", "trainer"))
    follower.poll()
    store.set_followers((follower,))
    store.save()
    store.close()


@pytest.mark.parametrize("exporter", [True, False])
def test_checkpoints_from_after_a_loss_that_is_not_finite_are_marked(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str], *, exporter: bool
) -> None:
    """Whether an exporter has read the log before, or not."""
    config_file.write_text(
        "runs: [{name: demo, framework: trl, path: out, logs: [{name: trainer, files: [train.log],"
        " patterns: [{name: step, regex: 'step (?P<step>\\d+) loss (?P<loss>\\S+)'}]}]}]\n"
        "runs_folder: runs.d\nstate_folder: state\n"
    )
    for step in (10, 20, 30):
        save(tmp_path / "out", step)
    log = tmp_path / "out" / "train.log"
    log.touch()
    command = ["checkpoints", "demo", f"--config.file={config_file}"]
    for lines in ("", "step 11 loss 0.5\nstep 12 loss nan\n", "step 25 loss nan\n"):
        with log.open("a") as file:
            file.write(lines)
        if exporter:
            follow(config_file)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("saved after the last step with a finite loss") == 2
    assert "  The loss is NaN or infinite, and was finite until step 11" in shown
    good = f"{tmp_path}/out/checkpoint-10"
    last = f"  Newest proved checkpoint from before: {good}: resume from it"
    assert shown.splitlines()[-1] == last
    assert main([*command, "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)
    late = {one["step"]: one["after_finite_loss"] for one in kind["checkpoints"]}
    assert late == {10: False, 20: True, 30: True}
    assert (kind["loss_finite_until"], kind["newest_good"]) == (11, good)
    with log.open("a") as file:
        file.write("step 26 loss 0.4\n")
    assert main(command) == 0
    assert "finite" not in capsys.readouterr().out


def test_an_epoch_in_the_name_of_a_checkpoint_is_compared_with_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Epoch 7 is not from before step 50: it may have been saved thousands of steps later."""
    for epoch in range(1, 13):
        path = tmp_path / "out" / f"epoch_{epoch}.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(TENSORS)
        os.utime(path, (1e9 + epoch, 1e9 + epoch))
    log = tmp_path / "train.log"
    steps = range(1, 13)
    log.write_text("".join(f"step {n}/99 loss: {1.0 if n < 9 else 'nan'}\n" for n in steps))
    runs = tmp_path / "runs.d"
    runs.mkdir()
    named = {"run": "grpo", "worker": "trainer", "pid": os.getpid(), "state": "stopped"}
    announced = runs / "grpo@trainer.json"
    announced.write_text(json.dumps({**named, "checkpoints": f"{tmp_path}/out", "log": str(log)}))
    announced.chmod(0o600)
    file = tmp_path / "exporter.yml"
    file.write_text(f"runs_folder: {runs}\n")
    command = ["checkpoints", "grpo", f"--config.file={file}"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "saved after the last step" not in shown
    unclear = "not known: their names have an epoch, and no step"
    assert shown.splitlines()[-1] == f"  Newest proved checkpoint from before: {unclear}"
    assert main([*command, "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)
    assert (kind["loss_finite_until"], kind["newest_good"]) == (8, None)
    assert kind["newest_proved"] == f"{tmp_path}/out/epoch_12.safetensors"
    states = [one["state"] for one in kind["checkpoints"]]
    assert states.count("proved") == 8  # as many as of any run: none is known to be from before
    assert not any(one["after_finite_loss"] for one in kind["checkpoints"])


@pytest.mark.parametrize("source", ["exporter", "times", "neither"])
def test_of_a_log_without_steps_the_time_of_a_loss_shows_which_checkpoint_is_from_before(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    """The time is that of an exporter, or of the line; without either it is not known."""
    config_file.write_text(
        "runs: [{name: demo, framework: trl, path: out, logs: [{name: trainer, files:"
        " [train.log]}]}]\nruns_folder: runs.d\nstate_folder: state\n"
    )
    config = load_config(config_file)
    log = tmp_path / "out" / "train.log"
    log.parent.mkdir()
    log.touch()
    store, (spec,) = LogStateStore(config.state_folder), log_specs(config.runs[0])
    begin = log.stat().st_mtime - HOUR_AGO
    now = [begin]
    follower = LogFollower(spec, now=lambda: now[0])
    for step, loss in (10, "0.5"), (20, "nan"), (30, "nan"):
        if source == "exporter":
            follower.poll()
        save(tmp_path / "out", step)
        saved = (tmp_path / "out" / f"checkpoint-{step}" / "model.safetensors").stat().st_mtime
        now[0] = saved + 3
        stamp = f"{datetime.fromtimestamp(now[0]).astimezone():%Y-%m-%d %H:%M:%S} "
        with log.open("a") as file:
            file.write(f"{stamp if source == 'times' else ''}{{'loss': {loss}, 'epoch': 0.1}}\n")
        os.utime(log, (now[0], now[0]))
    if source == "exporter":
        follower.poll()
        store.set_followers((follower,))
        store.save()
        store.close()
    command = ["checkpoints", "demo", f"--config.file={config_file}"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "  Newest proved checkpoint: checkpoint-30" in shown
    assert main([*command, "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)
    late = [one["step"] for one in kind["checkpoints"] if one["after_finite_loss"]]
    assert (kind["loss_not_finite"], kind["loss_finite_until"]) == (True, None)
    if source == "neither":
        assert (late, kind["newest_good"], kind["loss_finite_at"]) == ([], None, None)
        assert shown.splitlines()[-1] == f"  The loss is NaN or infinite; {NOT_KNOWN_SINCE}"
        assert "resume from it" not in shown
        return
    good = f"{tmp_path}/out/checkpoint-10"
    assert (sorted(late), kind["newest_good"]) == ([20, 30], good)
    last = f"  Newest proved checkpoint from before: {good}: resume from it"
    assert shown.splitlines()[-1] == last
    at = datetime.fromtimestamp(kind["loss_finite_at"]).astimezone()
    assert f"and was finite until {at:%Y-%m-%d %H:%M:%S}" in shown


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_after_a_night_of_nan_the_command_names_the_good_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """Also of a run that was stopped, and behind more bad saves than are listed or proved."""
    saves = 100
    for step in range(20, 20 * saves + 1, 20):
        save(tmp_path / "out", step)
    log = tmp_path / "train.log"
    lines = (f"step {n}/9999 loss: {1.0 if n < 50 else 'nan'}" for n in range(1, 20 * saves + 1))
    log.write_text("\n".join(lines) + "\n")
    runs = tmp_path / "runs.d"
    runs.mkdir()
    named = {
        "run": "grpo",
        "worker": "trainer",
        "pid": os.getpid(),
        "checkpoints": f"{tmp_path}/out",
    }
    announced = runs / "grpo@trainer.json"
    announced.write_text(json.dumps({**named, "state": state, "log": str(log)}))
    announced.chmod(0o600)
    file = tmp_path / "exporter.yml"
    file.write_text(f"runs_folder: {runs}\n")
    command = ["checkpoints", "grpo", f"--config.file={file}"]
    assert main(command) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    good = f"{tmp_path}/out/checkpoint-40"
    assert last == f"  Newest proved checkpoint from before: {good}: resume from it"
    proved = [line.split()[0] for line in shown if line.endswith("  proved")]
    assert proved == [*map(str, range(2000, 1840, -20)), "40", "20"]
    assert "  and 34 more, which were not read" in shown
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["newest_good"] == good


def test_a_checkpoint_of_some_seconds_is_not_called_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without a proof counts as complete once nothing was written for 30 s."""
    file = tmp_path / "exporter.yml"
    kind = (
        "{name: main, folder: out, entry: 'checkpoint-(?P<step>\\d+)', complete: {settled: ['*']}}"
    )
    file.write_text(f"runs: [{{name: demo, path: {tmp_path}, checkpoints: [{kind}]}}]\n")
    save(tmp_path / "out", 10, cut=3)
    save(tmp_path / "out", 20)
    now = time.time()
    for one in (tmp_path / "out/checkpoint-20").iterdir():
        os.utime(one, (now, now))
    command = ["checkpoints", "demo", f"--config.file={file}"]
    main(command)
    young, old, *rest = capsys.readouterr().out.splitlines()[2:]
    assert young.endswith("  settling")
    assert old.endswith("  incomplete")
    assert "  settling: whether its save is over is known 30 s after its last write" in rest
    main([*command, "--json"])
    (shown,) = json.loads(capsys.readouterr().out)
    assert [one["settling"] for one in shown["checkpoints"]] == [True, False]


def test_the_command_explains_what_is_proved_and_what_is_not(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(10, 100, 10):
        save(tmp_path / "out", step)
    assert main(["checkpoints", "demo", f"--config.file={config_file}"]) == 0
    shown = capsys.readouterr().out
    assert "checkpoint-10  " in shown
    assert "  unproved: it was not read: the newest 8 are, each 15 s after its last write" in shown
    assert "  proved: its content was read, and is sound" in shown
    assert "  incomplete: " not in shown


def test_the_command_lists_the_copies_which_no_resume_takes(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text(config_file.read_text().replace("path: out", "path: out, copies: there"))
    save(tmp_path / "out", 10)
    save(tmp_path / "there", 10, cut=3)
    assert main(["checkpoints", "demo", f"--config.file={config_file}"]) == 0
    *_, copies, _, copy, damage, newest = capsys.readouterr().out.splitlines()
    assert copies == f"run demo, default (copies): {tmp_path}/there"
    assert copy.endswith("damaged")
    assert damage.strip() == f"truncated: {DAMAGE}"
    assert newest == "  Newest proved checkpoint: none"


@pytest.mark.parametrize(
    ("file", "shown"),
    [("step-10.ckpt", "trainer"), ("last.ckpt", "trainer-overwritten"), ("notes.md", "trainer")],
)
def test_of_a_run_without_a_known_framework_only_a_kind_that_exists_is_listed(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str], file: str, shown: str
) -> None:
    saved = tmp_path / "ck"
    saved.mkdir()
    (saved / file).write_bytes(b"whole")
    (tmp_path / "runs.d").mkdir(mode=0o700)
    named = {"run": "grpo", "worker": "trainer", "pid": os.getpid(), "checkpoints": str(saved)}
    (tmp_path / "runs.d" / "grpo@trainer.json").write_text(json.dumps(named))
    assert main(["checkpoints", "grpo", f"--config.file={config_file}"]) == 0
    listed = [one for one in capsys.readouterr().out.splitlines() if one.startswith("run ")]
    where = "no checkpoints" if file == "notes.md" else saved
    assert listed == [f"run grpo, {shown}: {where}"]


def test_a_folder_that_does_not_exist_is_no_folder_without_checkpoints(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.d").mkdir(mode=0o700)
    typo = str(tmp_path / "typo")
    named = {"run": "grpo", "worker": "trainer", "pid": os.getpid(), "checkpoints": typo}
    (tmp_path / "runs.d" / "grpo@trainer.json").write_text(json.dumps(named))
    assert main(["checkpoints", "grpo", f"--config.file={config_file}"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"run grpo, trainer: no checkpoints: {typo} does not exist\n"


def test_a_run_is_named_by_the_folder_of_its_checkpoints_too(
    tmp_path: Path,
    config_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.d").mkdir(mode=0o700)
    for folder in ("ck", "notes"):
        (tmp_path / folder).mkdir()
    named = {"run": "grpo", "worker": "trainer", "pid": os.getpid()}
    named["checkpoints"] = str(tmp_path / "ck")
    (tmp_path / "runs.d" / "grpo@trainer.json").write_text(json.dumps(named))
    assert main(["checkpoints", "ck/", f"--config.file={config_file}"]) == 0
    assert capsys.readouterr().out == "run grpo, trainer: no checkpoints\n"
    assert main(["checkpoints", "notes", f"--config.file={config_file}"]) == 2
    error = "no run has the name notes; runs: demo, grpo; `trainwarden autopsy` reads any folder"
    assert error in capsys.readouterr().err


def test_an_unknown_run_is_misuse(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "other", f"--config.file={config_file}"]) == 2
    assert "no run has the name other; runs: demo\n" in capsys.readouterr().err
    for command in ("checkpoints", "stacks", "preflight"):
        given = "--run=dmeo" if command == "preflight" else "dmeo"
        assert main([command, given, f"--config.file={config_file}"]) == 2
        assert "; did you mean demo?" in capsys.readouterr().err


def test_without_any_run_the_error_says_how_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text(f"runs_folder: {tmp_path}\n")
    assert main(["checkpoints", f"--config.file={file}"]) == 2
    error = "trainwarden-exporter: runs: none, `trainwarden run` starts one\n"
    assert capsys.readouterr().err == error


def test_a_run_without_a_folder_of_checkpoints_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text(f"runs_folder: {tmp_path}\nruns: [{{name: a}}, {{name: b}}]\n")
    assert main(["checkpoints", f"--config.file={file}"]) == 0
    assert capsys.readouterr().out == "a, b: no folder of checkpoints is known\n"
