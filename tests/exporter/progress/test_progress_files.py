"""The step is read from real files, some while they are being written."""

from __future__ import annotations

import csv
import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Literal

import pytest

from trainwarden_exporter.frameworks.base import ProgressFile
from trainwarden_exporter.frameworks.path_resolution import RunInstance
from trainwarden_exporter.progress import progress_files
from trainwarden_exporter.progress.progress_files import (
    FileProgress,
    ProgressFileScanner,
    ProgressFileSpec,
    read_step,
    read_values,
)
from trainwarden_exporter.step_dirs.locations import InstanceFinder, RunLocation

Kind = Literal["json", "text", "jsonl", "csv"]


def message(
    folder: Path,
    kind: Kind,
    content: str,
    *,
    step: str = "step",
    total: str = "",
    step_offset: int = 0,
) -> tuple[int, int | None] | None:
    path = folder / "progress"
    path.write_text(content)
    return read_step(path, ProgressFile("state", "progress", kind, step, total, step_offset))


class TestJson:
    def test_as_transformers_writes_it(self, tmp_path: Path) -> None:
        state = json.dumps({"global_step": 1500, "max_steps": 5000, "log_history": [{"step": 1}]})
        assert message(tmp_path, "json", state, step="global_step", total="max_steps") == (
            1500,
            5000,
        )

    def test_keys_may_be_nested_or_hold_slashes(self, tmp_path: Path) -> None:
        content = '{"train": {"step": 5}, "perf/step": 7, "a": {"b": 3}}'
        assert message(tmp_path, "json", content, step="train/step") == (5, None)
        assert message(tmp_path, "json", content, step="perf/step") == (7, None)

    def test_numbers_count_from_one(self, tmp_path: Path) -> None:
        assert message(tmp_path, "json", '{"step": 1869}', step_offset=1) == (1870, None)
        assert message(tmp_path, "json", '{"step": 0}', step_offset=-1) == (0, None)

    @pytest.mark.parametrize(
        "content",
        ["", "{", '{"step": ', "[1]", "7", '{"step": "x"}', '{"step": null}', "[" * 99999],
    )
    def test_what_is_half_written_or_something_else_says_nothing(
        self, tmp_path: Path, content: str
    ) -> None:
        assert message(tmp_path, "json", content) is None


class TestText:
    def test_a_tracker(self, tmp_path: Path) -> None:
        pattern = r"^\s*(?P<step>\d+)"
        assert message(tmp_path, "text", "1500\n", step=pattern) == (1500, None)
        assert message(tmp_path, "text", "release\n", step=pattern) is None
        assert message(tmp_path, "text", "", step=pattern) is None

    def test_may_say_how_many_there_are(self, tmp_path: Path) -> None:
        text = "step 15 of 40"
        step, total = r"step (?P<step>\d+)", r"of (?P<total>\d+)"
        assert message(tmp_path, "text", text, step=step, total=total) == (15, 40)


class TestJsonl:
    def test_the_last_line_that_has_a_step_counts(self, tmp_path: Path) -> None:
        text = '{"step": 1}\n{"step": 2, "total": 9}\n{"note": "saved"}\n'
        assert message(tmp_path, "jsonl", text, total="total") == (2, 9)

    def test_a_line_half_written_is_passed_over(self, tmp_path: Path) -> None:
        assert message(tmp_path, "jsonl", '{"step": 1}\n{"step": 2') == (1, None)

    def test_only_the_end_is_read(self, tmp_path: Path) -> None:
        line = '{"step": %d, "filler": "' + "x" * 2000 + '"}\n'
        text = "".join(line % step for step in range(500))
        assert len(text) > 2 * progress_files.TAIL_BYTES
        assert message(tmp_path, "jsonl", text) == (499, None)


class TestCsv:
    def test_the_last_row_with_a_step_counts(self, tmp_path: Path) -> None:
        text = "epoch,loss,step\n0,1.5,9\n0,1.4,19\n1,,\n"
        assert message(tmp_path, "csv", text, step_offset=1) == (20, None)

    def test_a_row_half_written_is_passed_over(self, tmp_path: Path) -> None:
        assert message(tmp_path, "csv", "step,loss\n1500,0.5\n15") == (1500, None)

    def test_a_row_with_a_field_that_is_too_long_is_passed_over(self, tmp_path: Path) -> None:
        long = "x" * (csv.field_size_limit() + 1)
        text = f"step,loss,note\n1,0.5,a\n2,0.4,{long}\n"
        assert message(tmp_path, "csv", text) == (1, None)
        path = tmp_path / "metrics.csv"
        path.write_text(text)
        file = ProgressFile("metrics", "metrics.csv", "csv", "step")
        assert read_values(path, file) == {"loss": 0.5}

    def test_a_head_alone_says_nothing(self, tmp_path: Path) -> None:
        assert message(tmp_path, "csv", "step,loss\n") is None
        assert message(tmp_path, "csv", "") is None

    def test_of_a_long_table_beginning_and_end_are_read(self, tmp_path: Path) -> None:
        text = "step,note\n" + "".join(f'{step},"{"x" * 500}"\n' for step in range(2000))
        assert len(text) > 2 * progress_files.TAIL_BYTES
        assert message(tmp_path, "csv", text) == (1999, None)


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_files, "MAX_FILE_BYTES", 10)
    with pytest.raises(ValueError, match="too large"):
        message(tmp_path, "json", '{"step": 100000}')


def test_all_that_a_run_has_logged_is_not_kept_to_know_a_step(tmp_path: Path) -> None:
    lines = [{"loss": 0.5, "reward": 0.25, "step": step} for step in range(20_000)]
    text = json.dumps({"global_step": 1500, "log_history": lines, "max_steps": 5000})
    tracemalloc.start()
    assert message(tmp_path, "json", text, step="global_step", total="max_steps") == (1500, 5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(text)


class TestEye:
    TEMPLATE = "{trial}/checkpoint-*/state.json"

    def eye(self, folder: Path, **variables: str) -> ProgressFileScanner:
        file = ProgressFile("state", self.TEMPLATE, "json", "step")
        named = tuple(variables.items())
        return ProgressFileScanner(
            ProgressFileSpec("grpo", RunLocation(folder, (self.TEMPLATE,), named), file)
        )

    def write(self, folder: Path, location: str, step: int, at: float) -> Path:
        path = folder / location / "state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"step": step}))
        os.utime(path, (at, at))
        return path

    def test_sees_nothing_where_there_is_nothing(self, tmp_path: Path) -> None:
        assert self.eye(tmp_path)() is None
        assert self.eye(tmp_path / "missing")() is None

    def test_reads_the_newest(self, tmp_path: Path) -> None:
        self.write(tmp_path, "a/checkpoint-200", 200, 2000)
        self.write(tmp_path, "a/checkpoint-300", 300, 1000)  # of an earlier attempt
        assert self.eye(tmp_path)() == FileProgress(200, None, 2000)

    def test_reads_that_of_the_run_that_is_meant(self, tmp_path: Path) -> None:
        self.write(tmp_path, "a/checkpoint-200", 200, 1000)
        self.write(tmp_path, "b/checkpoint-100", 100, 2000)
        assert self.eye(tmp_path)() == FileProgress(100, None, 2000)
        assert self.eye(tmp_path, trial="a")() == FileProgress(200, None, 1000)

    def test_reads_again_what_has_changed_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[Path] = []

        def counting(path: Path, file: ProgressFile) -> tuple[int, int | None] | None:
            read.append(path)
            return read_step(path, file)

        monkeypatch.setattr(progress_files, "read_step", counting)
        eye = self.eye(tmp_path)
        self.write(tmp_path, "a/checkpoint-100", 100, 1000)
        assert eye() == eye() == FileProgress(100, None, 1000)
        assert len(read) == 1
        self.write(tmp_path, "a/checkpoint-100", 101, 1010)
        assert eye() == FileProgress(101, None, 1010)
        assert len(read) == 2

    def test_a_folder_that_is_closed_is_not_taken_for_empty(self, tmp_path: Path) -> None:
        closed = RunInstance({}, {self.TEMPLATE: ()}, unreadable=(tmp_path / "a",))
        file = ProgressFile("state", self.TEMPLATE, "json", "step")
        subject = ProgressFileSpec("grpo", RunLocation(tmp_path, (self.TEMPLATE,)), file)
        with pytest.raises(PermissionError):
            ProgressFileScanner(
                subject, InstanceFinder(subject.location, resolve=lambda *_: closed)
            )()


class TestValues:
    def test_as_lightning_writes_them(self, tmp_path: Path) -> None:
        """A row has the numbers of the training or those of the validation."""
        path = tmp_path / "metrics.csv"
        path.write_text(
            "epoch,step,train_loss,val_loss\n1,94,0.5,\n1,99,nan,\n1,99,,0.25\n1,104,0.1"
        )
        file = ProgressFile("metrics", "metrics.csv", "csv", "step")
        found = read_values(path, file)
        assert found["val_loss"] == 0.25
        assert math.isnan(found["train_loss"])
        assert found.keys() == {"train_loss", "val_loss"}

    def test_as_ray_tune_writes_them(self, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        path.write_text(
            '{"loss": 0.5, "training_iteration": 1, "config": {"loss": 7}, "pid": 12}\n'
            '{"loss": NaN, "training_iteration": 2, "done": false}\n{"loss": 3'
        )
        file = ProgressFile("result", "result.json", "jsonl", "training_iteration")
        assert [math.isnan(number) for number in read_values(path, file).values()] == [True]

    def test_a_table_has_no_more_than_so_many(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.csv"
        names = [f"loss_{number}" for number in range(100)]
        path.write_text(",".join(("step", *names)) + "\n" + ",".join("1" * 101) + "\n")
        file = ProgressFile("metrics", "metrics.csv", "csv", "step")
        assert len(read_values(path, file)) == progress_files.MAX_VALUES

    def test_a_name_that_can_be_no_label_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        names = ("loss\\ud800", "loss\\n", "loss" * 26)
        row = "".join(f'"{name}": 1, ' for name in names)
        path.write_text(f'{{{row}"step": 1, "loss": 0.5}}\n')
        file = ProgressFile("result", "result.json", "jsonl", "step")
        assert read_values(path, file) == {"loss": 0.5}

    def test_a_state_file_has_none(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_text('{"step": 1, "loss": 0.5}')
        assert read_values(path, ProgressFile("state", "state.json", "json", "step")) == {}
