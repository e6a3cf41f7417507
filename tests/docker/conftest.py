"""A real Docker engine for the whole of it, with an image that has a shell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dockerengine

IMAGE = "shell"


@pytest.fixture(scope="session")
def engine() -> Iterator[dockerengine.DockerEngine]:
    started = dockerengine.DockerEngine(dockerengine.find_programs())
    try:
        started.start()
        started.make_image(IMAGE)
        yield started
    finally:
        started.close()
