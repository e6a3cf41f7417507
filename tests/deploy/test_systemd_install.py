"""What deploy/systemd/install.py puts in place, without a systemd."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import stack
from systemd import install


def test_each_service_can_run_what_was_unpacked_for_one_account_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `trainwarden up` unpacks it; a service has an account of its own."""
    unpacked = tmp_path / "stack"
    with stack.private_files():
        for program in ("prometheus", "prometheus-alertmanager"):
            file = unpacked / program / "usr/libexec" / program
            file.parent.mkdir(parents=True)
            file.write_text("program")
            file.chmod(0o700)
            (unpacked / program / "page.html").write_text("")
    found = [
        unpacked / name / "usr/libexec" / name for name in ("prometheus", "prometheus-alertmanager")
    ]
    binaries = stack.Binaries(found[0], found[0], found[1], found[1])
    monkeypatch.setattr(install, "find_binaries", lambda: binaries)
    places = install.Places(tmp_path / "host")
    (places.programs / "bin").mkdir(parents=True)

    install.install_servers(places)

    kept = places.programs / "lib/servers"
    modes = {
        path.relative_to(kept).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in kept.rglob("*")
    }
    assert modes["prometheus/page.html"] == 0o644
    assert {mode for path, mode in modes.items() if not path.endswith(".html")} == {0o755}
