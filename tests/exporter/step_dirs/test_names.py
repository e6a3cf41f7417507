from __future__ import annotations

import os

import pytest

from trainwarden_exporter.step_dirs.names import NameParser, StepDirName, counts_epochs

NEMO = NameParser(r"step_(?P<step>\d+)", r"tmp_step_(?P<step>\d+)")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step_10", StepDirName("step_10", 10)),
        ("step_0010", StepDirName("step_0010", 10)),
        ("tmp_step_10", StepDirName("tmp_step_10", 10, partial=True)),
        ("old_step_10", None),
        ("step_10.tmp", None),
        ("step_", None),
        (os.fsdecode(b"step_\xff"), None),
    ],
)
def test_a_name_is_read_as_a_whole(name: str, expected: StepDirName | None) -> None:
    assert NEMO.parse(name) == expected


def test_a_name_of_both_kinds_is_a_partial_one() -> None:
    archon = NameParser(r"globalstep(?P<step>\d+).*", r"globalstep\d+\.tmp")
    assert archon.parse("globalstep7.tmp") == StepDirName("globalstep7.tmp", None, partial=True)


def test_a_name_may_hold_a_moment_and_no_step() -> None:
    ray = NameParser(r"checkpoint_[\d_-]+")
    older, newer = ray.parse("checkpoint_2025-11-20"), ray.parse("checkpoint_2025-11-21")
    assert older
    assert newer
    assert older.number is None
    assert older.sort_key < newer.sort_key


def test_a_group_that_took_no_part_gives_no_step() -> None:
    named = NameParser(r"last|step=(?P<step>\d+)").parse("last")
    assert named == StepDirName("last", None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/r/ck/epoch-7.pt", True),
        ("/r/ck/model_epoch_12.ckpt.tar", True),
        ("epoch=3.ckpt", True),
        ("ckpt_ep7", True),
        ("epoch=3-val_loss=0.52.ckpt", True),
        ("epoch=3-step=120.ckpt", False),
        ("epoch=3-val_loss=0.52-step=120.ckpt", False),
        ("epoch0epochstep9globalstep9", False),
        ("/r/epoch-7/checkpoint-500", False),
        ("step7.pt", False),
        ("", False),
    ],
)
def test_a_name_may_count_epochs(path: str, *, expected: bool) -> None:
    assert counts_epochs(path) is expected
