"""Checkpoints as safetensors, torch and torch.distributed write them, byte by byte."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import time
import zipfile
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.entry_check import EntryCheck, stat_files
from trainwarden_exporter.checkpoints.paced_reader import UnlimitedRate
from trainwarden_exporter.checkpoints.proofs import CheckpointProof, ProofSnapshot
from trainwarden_exporter.checkpoints.prover import CheckpointProver, open_proofs
from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.step_dirs.filesystem import FileSystem

ITEMS = 4096


def numbers(seed: int, items: int = ITEMS) -> bytes:
    random = Random(seed)  # noqa: S311 - weights
    return array("f", (random.gauss(0, 1) for _ in range(items))).tobytes()


def safetensors(tensors: dict[str, bytes]) -> bytes:
    header, start = {}, 0
    for name, data in tensors.items():
        end = start + len(data)
        header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def pickled(*storages: tuple[str, int], more: bytes = b"") -> bytes:
    """A dict as torch.save pickles it, with a persistent id for each storage."""
    body = b"\x80\x02}q\x00"
    for key, items in storages:
        name = key.encode()
        body += b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + name
        body += b"X\x03\x00\x00\x00cpuJ" + struct.pack("<i", items) + b"tQ0"
    return body + more + b"."


def torch_file(path: Path, *tensors: bytes, more: bytes = b"") -> None:
    root = path.stem
    with zipfile.ZipFile(path, "w") as archive:
        keys = [(str(key), len(data) // 4) for key, data in enumerate(tensors)]
        archive.writestr(f"{root}/data.pkl", pickled(*keys, more=more))
        for key, data in enumerate(tensors):
            archive.writestr(f"{root}/data/{key}", data)
        archive.writestr(f"{root}/version", b"3\n")


NAN = float("nan")


@pytest.mark.parametrize(("value", "kinds"), [(1.0, set()), (float("nan"), {"not_finite"})])
def test_a_checkpoint_of_one_safetensors_file_is_read_as_one(
    tmp_path: Path, value: float, kinds: set[str]
) -> None:
    path = tmp_path / "step-10.safetensors"
    weights = array("f", [0.5] * 2000 + [value])
    path.write_bytes(safetensors({"w": weights.tobytes(), "bias": bytes(512)}))
    files = stat_files(FileSystem(), str(path))
    assert files is not None
    check = EntryCheck(str(path), files, UnlimitedRate(), lambda: None)
    for _ in check.steps():
        pass
    assert {one.kind for one in check.record.damages} == kinds


SIZE = len(safetensors({"w": numbers(0), "bias": bytes(512)}))


class Run:
    """A run of the Trainer of transformers, and a prover of its checkpoints."""

    def __init__(
        self, path: Path, state: Path | None = None, framework: str = "trl", **layout: object
    ) -> None:
        self.path = path
        self.state = state
        self.later = 60.0
        """Seconds by which the exporter's clock is ahead, so that every file is quiet."""
        given: dict[str, object] = {"name": "r", "framework": framework, "path": str(path)}
        if layout:
            given["checkpoints"] = [{"name": "own", "folder": ".", **layout}]
        (self.spec, *_) = checkpoint_specs(RunConfig.model_validate(given))
        self.scanner = CheckpointScanner(self.spec, now=self.now, clock=self.now)
        self.start()

    def start(self) -> None:
        self.prover = CheckpointProver(
            self.spec,
            lambda: self.seen,
            state=open_proofs(self.state, self.spec),
            rate=UnlimitedRate(),
            now=self.now,
            clock=self.now,
        )

    def now(self) -> float:
        return time.time() + self.later

    def save(self, step: int, weights: bytes = b"") -> Path:
        folder = self.path / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        tensors = {"w": weights or numbers(step), "bias": bytes(512)}
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        torch_file(folder / "optimizer.pt", numbers(step + 1), numbers(step + 2))
        torch_file(folder / "scheduler.pt")
        torch_file(folder / "rng_state.pth", numbers(step + 3, 100))
        torch_file(folder / "training_args.bin")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        return folder

    def prove(self) -> ProofSnapshot:
        self.seen = self.scanner()
        self.later += 30.0
        return self.prover.prove_all()

    def newest(self) -> CheckpointProof:
        return self.prove().checkpoints[0]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def cut(path: Path, to: int) -> None:
    os.truncate(path, to if to >= 0 else path.stat().st_size + to)


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def test_a_command_that_somebody_waits_for_keeps_its_priority(run: Run) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    run.save(1)
    run.prove()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_sound_checkpoints_are_proved(run: Run) -> None:
    run.save(10)
    run.save(20)
    found = run.prove()
    assert [(one.step, one.state) for one in found.checkpoints] == [(20, "proved"), (10, "proved")]
    assert found.newest_proved is found.checkpoints[0]
    assert set(found.damage_counts().values()) == {0}
    assert not found.resume_problem


@pytest.mark.parametrize("names", [("model.pt",), ("model.pt", "optimizer.pt")])
def test_a_checkpoint_of_ones_own_loop_is_sound(run: Run, names: tuple[str, ...]) -> None:
    folder = run.path / "checkpoint-10"
    folder.mkdir(parents=True)
    for name in names:
        torch_file(folder / name, numbers(1))
    (folder / "trainer_state.json").write_text('{"global_step": 10}')
    found = run.prove()
    assert [one.state for one in found.checkpoints] == ["proved"]
    assert not found.resume_problem


class OwnLoop(Run):
    """A training loop of somebody's own, whose checkpoints are files of any format."""

    def __init__(self, path: Path, complete: dict[str, object]) -> None:
        super().__init__(path, framework="generic", entry=r"step-(?P<step>\d+)", complete=complete)

    def write(self, step: int, **files: bytes) -> None:
        folder = self.path / f"step-{step}"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_bytes(content)

    def states(self) -> list[tuple[int | None, str]]:
        return [(one.step, one.state) for one in self.prove().checkpoints]


SETTLED: dict[str, object] = {"settled": ["*"]}
WHOLE = pickle.dumps({"w": [0.5] * 1000}, protocol=4)
UNKNOWN = b"\xc1" + numbers(7, 2000)


@pytest.mark.parametrize(
    ("files", "complete", "state"),
    [
        ({"model_msgpack": UNKNOWN}, SETTLED, "unproved"),
        ({"model_bin": UNKNOWN, "state_json": b"{}"}, SETTLED, "unproved"),
        ({"model_pkl": WHOLE}, SETTLED, "proved"),
        ({"model_pkl": WHOLE, "vocab_dat": UNKNOWN[:100]}, SETTLED, "proved"),
        ({"model_pt": b"[0.5, 0.25]"}, SETTLED, "proved"),
        ({"model_pt": b"[0.5, 0.2"}, SETTLED, "unproved"),
        ({"model_msgpack": UNKNOWN}, {"renamed": True}, "proved"),
        ({"model_msgpack": UNKNOWN, "DONE": b"1"}, {"marker": ["DONE"]}, "proved"),
    ],
)
def test_the_only_checkpoint_of_an_unknown_format_may_be_cut_short(
    tmp_path: Path, files: dict[str, bytes], complete: dict[str, object], state: str
) -> None:
    run = OwnLoop(tmp_path / "run", complete)
    run.write(10, **files)
    assert run.states() == [(10, state)]


def test_checkpoints_of_an_unknown_format_are_as_large_as_another_one(tmp_path: Path) -> None:
    run = OwnLoop(tmp_path / "run", SETTLED)
    run.write(10, model_msgpack=UNKNOWN)
    run.write(20, model_msgpack=UNKNOWN[:-9])
    assert run.states() == [(20, "proved"), (10, "proved")]
    run.write(30, model_msgpack=UNKNOWN[:4000])
    found = run.prove()
    assert [one.state for one in found.checkpoints] == ["unproved", "proved", "proved"]
    assert found.newest_proved is found.checkpoints[1]
    assert [one.may_be_cut for one in found.checkpoints] == [True, False, False]
    for step in (10, 20):
        shutil.rmtree(run.path / f"step-{step}")
    assert run.states() == [(30, "unproved")]


def test_a_checkpoint_without_weights_is_neither_damaged_nor_proved(run: Run) -> None:
    folder = run.path / "checkpoint-10"
    folder.mkdir(parents=True)
    torch_file(folder / "optimizer.pt", numbers(1))
    (folder / "trainer_state.json").write_text('{"global_step": 10}')
    found = run.prove()
    assert [(one.state, one.damages) for one in found.checkpoints] == [("unproved", ())]
    assert (found.newest_proved, found.resume_problem) == (None, "")


def test_what_an_earlier_version_has_missed_is_read_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", tmp_path / "state")
    run.save(10)
    run.prove()
    (path, record), *_ = run.prover._records.items()
    lost = Damage(DamageKind.MISSING, "scheduler.pt", "is missing beside optimizer.pt")
    run.prover._state.save({path: replace(record, damages=(lost,))})
    run.start()
    assert run.newest().state == "proved"


def rename_rank(folder: Path) -> None:
    torch_file(folder / "optim_rank_1.pt", numbers(1))
    (folder / "optim_rank_1.pt").rename(folder / "optim_rank_0.pt")


def swap(folder: Path) -> None:
    """Both are whole, and each has the other's content."""
    torch_file(folder / "extra.pt", numbers(1))
    (folder / "optimizer.pt").rename(folder / "between")
    (folder / "extra.pt").rename(folder / "optimizer.pt")
    (folder / "between").rename(folder / "extra.pt")


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


DAMAGES: dict[str, tuple[Callable[[Path], object], DamageKind]] = {
    "in the length": (lambda one: cut(one / "model.safetensors", 5), DamageKind.TRUNCATED),
    "in the header": (lambda one: cut(one / "model.safetensors", 40), DamageKind.TRUNCATED),
    "in a tensor": (lambda one: cut(one / "model.safetensors", -1), DamageKind.TRUNCATED),
    "too long": (
        lambda one: overwrite(one / "model.safetensors", SIZE, b"x"),
        DamageKind.CORRUPT,
    ),
    "header": (lambda one: overwrite(one / "model.safetensors", 9, b"\0"), DamageKind.CORRUPT),
    "one offset": (
        lambda one: change(one / "model.safetensors", b"[0, ", b"[0.0"),
        DamageKind.CORRUPT,
    ),
    "empty": (lambda one: cut(one / "optimizer.pt", 0), DamageKind.TRUNCATED),
    "zip": (lambda one: cut(one / "optimizer.pt", -30), DamageKind.TRUNCATED),
    "zip record": (
        lambda one: overwrite(one / "optimizer.pt", 5000, b"\xaa\x55"),
        DamageKind.CORRUPT,
    ),
    "nan": (
        lambda one: overwrite(one / "model.safetensors", SIZE - 1024, struct.pack("<f", NAN)),
        DamageKind.NOT_FINITE,
    ),
    "no optimizer": (lambda one: (one / "optimizer.pt").unlink(), DamageKind.MISSING),
    "no weights": (lambda one: (one / "model.safetensors").unlink(), DamageKind.MISSING),
    "permissions": (lambda one: (one / "optimizer.pt").chmod(0), DamageKind.UNREADABLE),
    "leftover": (
        lambda one: (one / "model.safetensors.tmp").write_bytes(b"x"),
        DamageKind.INTERRUPTED,
    ),
    "one byte": (lambda one: cut(one / "rng_state.pth", 1), DamageKind.TRUNCATED),
    "first header": (
        lambda one: overwrite(one / "optimizer.pt", 0, b"\xaa\x55"),
        DamageKind.CORRUPT,
    ),
    "swapped": (swap, DamageKind.MISMATCH),
    "renamed rank": (rename_rank, DamageKind.MISMATCH),
    "bad json": (lambda one: (one / "config.json").write_text('{"a": 1'), DamageKind.CORRUPT),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damages_are_found(name: str, run: Run) -> None:
    run.save(10)
    damage, kind = DAMAGES[name]
    damage(run.save(20))
    found = run.prove()
    newest, older = found.checkpoints
    assert newest.state == "damaged"
    assert kind in {one.kind for one in newest.damages}, newest.damages
    assert older.state == "proved"
    assert found.resume_problem.startswith("checkpoint-20: ")
    assert found.resume_problem.endswith(f"({newest.damages[0].kind.replace('_', ' ')})")
    assert found.damage_counts()[kind] == 1
    assert found.newest_proved is older


def test_a_copy_is_no_swapped_file(run: Run) -> None:
    folder = run.save(10)
    shutil.copy(folder / "optimizer.pt", folder / "optimizer-kept.pt")
    assert run.newest().state == "proved"


def test_zeros_are_found_where_the_checkpoint_before_had_values(run: Run) -> None:
    weights = numbers(1, 8192)
    run.save(10, weights)
    run.prove()
    run.save(20, weights[:8192] + bytes(8192) + weights[16384:])
    (damage,) = run.newest().damages
    assert damage.kind is DamageKind.ZEROS


def test_zeros_that_were_there_before_are_no_damage(run: Run) -> None:
    weights = bytes(8192) + numbers(1)
    run.save(10, weights)
    run.save(20, weights)
    assert [one.state for one in run.prove().checkpoints] == ["proved", "proved"]


def test_rot_is_found_that_left_the_time_of_the_file(run: Run) -> None:
    file = run.save(10) / "model.safetensors"
    assert run.newest().state == "proved"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    overwrite(file, 1000, b"\1\2\3")
    os.utime(file, ns=times)
    (damage,) = run.newest().damages
    assert (damage.kind, damage.file) == (DamageKind.CHANGED, "model.safetensors")
    # also after it was read again
    os.utime(file, ns=times)
    assert run.newest().state == "damaged"


def test_a_file_of_another_save_is_found(run: Run) -> None:
    folder, other = run.save(10), run.save(5)
    run.prove()
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    proofs = {one.step: one for one in run.prove().checkpoints}
    assert [one.kind for one in proofs[10].damages] == [DamageKind.CHANGED]
    assert proofs[5].state == "proved"


def test_a_checkpoint_that_is_saved_again_is_proved_again(run: Run) -> None:
    shutil.rmtree(run.save(10))
    run.save(10)
    run.prove()
    shutil.rmtree(run.path / "checkpoint-10")
    run.save(10, numbers(99))
    run.prove()
    assert run.newest().state == "proved"


def test_a_save_in_progress_is_not_accused(run: Run) -> None:
    run.save(10)
    run.later = 0.0
    cut(run.save(20) / "optimizer.pt", 100)
    run.seen = run.scanner()
    found = run.prover.prove_all()
    assert {one.state for one in found.checkpoints} == {"unproved"}
    assert not found.resume_problem


def test_an_incomplete_checkpoint_that_a_resume_takes_is_a_problem_after_ten_minutes(
    run: Run,
) -> None:
    run.save(10)
    (run.save(20) / "trainer_state.json").unlink()
    assert not run.prove().resume_problem
    run.later += 600.0
    found = run.prove()
    assert (found.resume_problem, found.resume_kind) == ("checkpoint-20 is incomplete", "")


def test_proofs_survive_a_restart_of_the_exporter(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", tmp_path / "state")
    run.save(10)
    cut(run.save(20) / "optimizer.pt", -10)
    before = run.prove()
    run.start()
    assert run.prover() == before
    # they were not read again
    assert run.prover._records == run.prover._state.value
    assert {one.checked_at for one in run.prover._records.values()} == {
        one.checked_at for one in run.prover._state.value.values()
    }


def test_a_tracker_that_is_ahead_is_found(tmp_path: Path) -> None:
    run = Run(tmp_path, framework="verl")
    folder = tmp_path / "global_step_10/actor"
    folder.mkdir(parents=True)
    for rank in range(2):
        torch_file(folder / f"model_world_size_2_rank_{rank}.pt", numbers(rank))
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("10")
    found = run.prove()
    assert (found.checkpoints[0].state, found.tracker_problem) == ("proved", "")
    tracker.write_text("20")
    found = run.prove()
    assert found.resume_problem == found.tracker_problem
    assert found.resume_kind == DamageKind.TRACKER
    assert found.tracker_problem.endswith("names step 20, which does not exist")
    assert found.damage_counts()[DamageKind.TRACKER] == 1
    (folder / "model_world_size_2_rank_1.pt").unlink()
    tracker.write_text("10")
    (damage,) = run.newest().damages
    assert damage.kind is DamageKind.MISSING


def test_no_pickle_is_executed(run: Run, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    call = f"cos\nsystem\n(S'touch {witness}'\ntR0".encode()
    torch_file(run.save(10) / "extra.pt", numbers(1), more=call)
    (run.path / "checkpoint-10/state.pkl").write_bytes(b"\x80\x02" + call + b"N.")
    assert run.newest().state == "proved"
    assert not witness.exists()
