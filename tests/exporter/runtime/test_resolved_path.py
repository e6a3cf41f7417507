"""Links in paths, also on a mount that does not answer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.waiting import until

from trainwarden_exporter.runtime import bounded_calls
from trainwarden_exporter.runtime import resolved_path as module
from trainwarden_exporter.runtime.resolved_path import resolved_path


def test_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")

    assert resolved_path(f"{tmp_path}/link/run") == f"{tmp_path.resolve()}/target/run"


def test_while_a_mount_hangs_the_last_answer_counts_and_nothing_else_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.path.realpath
    folder = real(tmp_path)
    link = f"{folder}/link"
    Path(link).symlink_to("one")
    assert resolved_path(link) == f"{folder}/one"
    answers, calls = threading.Event(), list[str]()

    def hangs(path: str) -> str:
        calls.append(path)
        answers.wait()
        return real(path)

    monkeypatch.setattr(bounded_calls, "SECONDS", 0.05)
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(os.path, "realpath", hangs)
    never_seen = f"{folder}/other"
    for _ in range(3):
        assert resolved_path(link) == f"{folder}/one"
        assert resolved_path(never_seen) == never_seen
    assert calls == [link, never_seen]

    Path(link).unlink()
    Path(link).symlink_to("two")
    answers.set()
    until(lambda: resolved_path(link) == f"{folder}/two")
