"""What both routers share: they know their servers by what those say of themselves.

A router that is ready has a server that answers /health, and that may hang all the same (seen on
both); the servers behind it are therefore to be watched for themselves.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

from trainwarden_exporter.inference.engines.base import Engine, models_of
from trainwarden_exporter.inference.questions import Answer, Answers, Question
from trainwarden_exporter.inference.reading import Beat, Life, Reading

METRICS_PORT = 29000


class Router(Engine):
    """A router that says by /readiness whether there is a server to send requests to."""

    deep = False
    metrics_port = METRICS_PORT
    health: ClassVar[str]
    """The gauge of whether a server is healthy, by server."""
    active: ClassVar[str]
    """The gauge of requests in flight, by server."""
    answered: ClassVar[str]
    """The counter of requests that were answered by a server."""

    @property
    def liveness(self) -> Question:
        return Question("life", "/readiness", patience=None)

    def life(self, answer: Answer) -> Life:
        unready = answer.answered and answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        return Life.NOT_READY if unready else super().life(answer)

    def read(self, answers: Answers) -> Reading:
        series = self.series(answers)
        servers = series.of(self.health)
        done = series.sum(self.answered)
        return Reading(
            # A request may take as long as it likes, so nothing is owed.
            beats={} if done is None else {"": Beat(done, owed=False)},
            running=series.sum(self.active),
            models=models_of(answers),
            backends=float(len(servers)) if servers else None,
            healthy_backends=series.sum(self.health),
        )
