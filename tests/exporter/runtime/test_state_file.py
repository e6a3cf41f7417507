from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.runtime import state_file
from trainwarden_exporter.runtime.state_file import StateFile


def names(path: Path | None) -> StateFile[list[str]]:
    return StateFile(path, list[str], empty=[])


def test_a_value_outlives_its_file_object(tmp_path: Path) -> None:
    path = tmp_path / "new" / "names.json"
    names(path).save(["a", "b"])
    assert names(path).value == ["a", "b"]
    assert [file.name for file in path.parent.iterdir()] == ["names.json"]


def test_without_a_path_it_is_kept_in_memory() -> None:
    file = names(None)
    file.save(["a"])
    assert file.value == ["a"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"[1, 2]", b"\xff\x00"])
def test_garbage_is_as_good_as_nothing_and_is_reported(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "names.json"
    path.write_bytes(content)
    assert names(path).value == []
    assert [record.message for record in caplog.records] == ["state not read"]


def test_what_cannot_be_written_is_reported_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file" / "names.json"
    path.parent.write_text("not a folder")
    file = names(path)
    caplog.clear()
    file.save(["a"])
    file.save(["a"])
    assert [record.message for record in caplog.records] == ["state not saved"]
    path.parent.unlink()
    file.save(["a"])
    assert names(path).value == ["a"]


def test_the_same_value_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    file = names(path)
    file.save(["a"])
    before = path.stat().st_ino
    file.save(["a"])
    assert path.stat().st_ino == before


def test_what_checks_the_values_of_a_kind_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(tmp_path / "a.json").save(["a"])
    monkeypatch.setattr(state_file, "TypeAdapter", None)  # nothing can be built any more
    assert names(tmp_path / "a.json").value == ["a"]
