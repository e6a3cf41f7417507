"""What programs say of their version, in as many words as there are programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import peers


@pytest.mark.parametrize(
    ("message", "version"),
    [
        ("process-exporter, version 0.7.10-3+b5 (branch: debian/sid, revision: x)", "0.7.10-3+b5"),
        ("process-exporter, version  (branch: debian/sid, revision: 0.8.7-2)\n  go", "0.8.7-2"),
        ("mtail version 3.0.0~rc50 git revision unknown", "3.0.0~rc50"),
        ("what?", "?"),
    ],
)
def test_the_version_is_read_from_what_a_program_says(message: str, version: str) -> None:
    assert peers._version(message) == version


def test_what_could_not_be_fetched_whole_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PEERS", tmp_path)

    def fill(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise peers.PeerMissing("no network")

    with pytest.raises(peers.PeerMissing):
        peers._kept(tmp_path / "peer", fill)
    assert not list(tmp_path.iterdir())
