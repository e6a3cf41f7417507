"""Pins the images of the Dockerfile and of docker-compose.yml by digest.

    python deploy/pin_images.py

Asks the registry for the digest of each tag (`docker buildx imagetools inspect`) and writes it
behind the tag. Needs Docker with buildx, and a network. An image that cannot be resolved keeps what
it has: it is named on stderr, and the exit status is 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from stack import PROJECT

FILES = ("Dockerfile", "docker-compose.yml")
RESOLVE_SECONDS = 120.0

IMAGE = re.compile(r"(?P<name>docker\.io/[a-z0-9./_-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class UnresolvedError(Exception):
    """An image without a known digest; the text says why."""


def find_images(texts: Iterable[str]) -> list[str]:
    """Returns the images in `texts`, each once and without its digest."""
    return sorted({match["name"] for text in texts for match in IMAGE.finditer(text)})


def resolve(image: str) -> str:
    """Returns the digest of what the registry has for the tag. Raises UnresolvedError."""
    command = (
        "docker",
        "buildx",
        "imagetools",
        "inspect",
        image,
        "--format",
        "{{.Manifest.Digest}}",
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=RESOLVE_SECONDS
        )
    except FileNotFoundError:
        raise UnresolvedError("there is no docker on this machine") from None
    except subprocess.TimeoutExpired:
        raise UnresolvedError(f"no answer within {RESOLVE_SECONDS:g} s") from None
    if done.returncode != 0:
        raise UnresolvedError((done.stderr.strip().splitlines() or ["docker failed"])[-1])
    digest = done.stdout.strip()
    if not _DIGEST.fullmatch(digest):
        raise UnresolvedError(f"docker printed no digest: {digest[:100]!r}")
    return digest


def pin(text: str, digests: dict[str, str]) -> str:
    """Returns `text` with the digest of each image of `digests` behind its tag."""

    def pinned(match: re.Match[str]) -> str:
        digest = digests.get(match["name"])
        return match[0] if digest is None else f"{match['name']}@{digest}"

    return IMAGE.sub(pinned, text)


def main(project: Path = PROJECT, ask: Callable[[str], str] = resolve) -> int:
    """Pins the images in `project`. Returns the exit status."""
    texts = {project / name: (project / name).read_text(encoding="utf-8") for name in FILES}
    digests: dict[str, str] = {}
    images = find_images(texts.values())
    for image in images:
        try:
            digests[image] = ask(image)
        except UnresolvedError as error:
            print(f"not resolved, left as it is: {image}: {error}", file=sys.stderr)
        else:
            print(f"{image}@{digests[image]}")
    for path, text in texts.items():
        if (written := pin(text, digests)) != text:
            path.write_text(written, encoding="utf-8")
    return 0 if digests.keys() == set(images) else 1


if __name__ == "__main__":
    sys.exit(main())
