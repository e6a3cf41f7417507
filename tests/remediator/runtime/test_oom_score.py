from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_remediator.runtime.oom_score import PROTECTED_SCORE, OomScore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "oom_score_adj"
    file.write_text("200\n")
    return file


def read(file: Path) -> int:
    return int(file.read_text())


def test_it_is_lowered(file: Path) -> None:
    score = OomScore(file)
    assert score.lower()
    assert score.lower()
    assert read(file) == PROTECTED_SCORE


def test_a_score_that_is_lower_already_stays(file: Path) -> None:
    file.write_text("-1000\n")
    score = OomScore(file)
    assert score.lower()
    assert read(file) == -1000
    with score.inheritable():
        assert read(file) == 0
    assert read(file) == -1000


def test_what_is_started_inherits_what_it_was(file: Path) -> None:
    score = OomScore(file)
    score.lower()
    with score.inheritable():
        assert read(file) == 200
        with score.inheritable():
            assert read(file) == 200
        assert read(file) == 200
    assert read(file) == PROTECTED_SCORE


def test_a_score_that_was_never_lowered_is_not_touched(file: Path) -> None:
    with OomScore(file).inheritable():
        assert read(file) == 200
    assert read(file) == 200


def test_where_it_is_not_allowed_it_is_done_without(tmp_path: Path) -> None:
    score = OomScore(tmp_path)  # a folder cannot be written to, even by root
    assert not score.lower()
    with score.inheritable():
        pass
