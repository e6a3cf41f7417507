"""The engine that these tests start leaves nothing on the machine."""

from __future__ import annotations

from pathlib import Path

import dockerengine


def mounted(engine: dockerengine.DockerEngine) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(engine.folder) in line]


def test_no_mount_and_no_folder_is_left() -> None:
    engine = dockerengine.DockerEngine(dockerengine.find_programs())
    try:
        engine.start()
        engine.make_image("shell")
        plain = ("run", "--detach", "--network=host", "--restart=always", "shell")
        engine.docker(*plain, "sh", "-c", "sleep 1000")
        # which the engine itself does not unmount
        assert any("/netns/" in line for line in mounted(engine))
    finally:
        engine.close()
    assert mounted(engine) == []
    assert not engine.folder.exists()
