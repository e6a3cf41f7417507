"""What a Docker engine is told to do."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping

from trainwarden_exporter.containers.docker import Engine, EngineError

MARGIN_SECONDS = 30.0
"""How much longer than the stop itself an engine may take to restart a container."""

_DONE = (http.client.NO_CONTENT, http.client.NOT_MODIFIED)


class ActingEngine(Engine):
    """A Docker engine that is also told what to do; all methods raise EngineError."""

    def restart(self, identifier: str, *, grace: float) -> None:
        """Stop that container, with SIGKILL after `grace` seconds, and start it."""
        query = {"t": str(round(grace))}
        self._tell(f"/containers/{identifier}/restart", query, patience=grace + MARGIN_SECONDS)

    def start(self, identifier: str) -> None:
        self._tell(f"/containers/{identifier}/start", {}, patience=MARGIN_SECONDS)

    def _tell(self, place: str, query: Mapping[str, str], *, patience: float) -> None:
        status, body = self._ask(place, query, method="POST", patience=patience)
        if status not in _DONE:
            raise EngineError("failing", f"status {status}: {_message(body)}")


def _message(body: bytes) -> str:
    try:
        said = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        said = body.decode("utf-8", "replace")
    return " ".join(str(said).split())[:300]
