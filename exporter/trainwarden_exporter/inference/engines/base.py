"""What an engine is here: which questions tell how it is, and what its answers mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.questions import PAGE, Answer, Answers, Contact, Question
from trainwarden_exporter.inference.reading import Completion, Life, Reading
from trainwarden_exporter.inference.series import Series, parse_series

METRICS = Question("metrics", "/metrics", limit=PAGE, patience=None)
MODELS = Question("models", "/v1/models")

_CONTACTS = {
    Contact.REFUSED: Life.REFUSED,
    Contact.SILENT: Life.SILENT,
    Contact.UNREACHABLE: Life.UNREACHABLE,
    Contact.BROKEN: Life.BROKEN,
}
_MOST_MODELS = 1000


class Stage(Enum):
    """When a question is asked, beside the one for life."""

    PASSIVE = auto()
    """In every round in which the server serves."""
    DOUBT = auto()
    """In a round in which nothing was seen to get done: is there a reason?"""
    SELDOM = auto()
    """Now and then: what hardly changes."""


class Engine(ABC):
    """One kind of server. All that it does is pure: questions out, answers in.

    `deep` says whether a completion may be asked for unless the configuration says otherwise: of a
    router it proves nothing about the servers behind it, which are to be watched themselves.
    """

    name: ClassVar[str]
    deep: ClassVar[bool] = True
    wanted: ClassVar[tuple[str, ...]] = ()
    """The series that are read of its page of metrics."""
    metrics_port: ClassVar[int | None] = None
    """The port of that page by default, where it is not the server's own."""

    def __init__(self, config: ServerConfig, url: str, metrics_url: str | None = None) -> None:
        self._config = config
        self._url = url
        self._metrics_url = metrics_url or config.metrics_url

    def address(self, question: Question) -> str:
        """The whole URL of a question."""
        if question.name != "metrics":
            return self._url + question.path
        if self._metrics_url is not None:
            return self._metrics_url
        if self.metrics_port is None:
            return self._url + question.path
        parts = urlsplit(self._url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # Of routers and Triton; it has no TLS there.
        return urlunsplit(("http", f"{host}:{self.metrics_port}", question.path, "", ""))

    @property
    @abstractmethod
    def liveness(self) -> Question:
        """The first question of each round, which costs the server nothing; it is named `life`."""

    def life(self, answer: Answer) -> Life:
        """What the answer to `liveness` means."""
        if not answer.answered:
            return _CONTACTS[answer.contact]
        if answer.unauthorized:
            return Life.UNAUTHORIZED
        return Life.SERVING if answer.good else Life.BAD

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        """What to ask at `stage`, after `answers`; called again until nothing new is asked.

        `failed` says that the last completion did.
        """
        if stage is Stage.PASSIVE and self.wanted:
            yield METRICS
        if stage is Stage.SELDOM:
            yield MODELS

    @abstractmethod
    def read(self, answers: Answers) -> Reading:
        """What the answers of a round say. What is missing or garbage says nothing."""

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        """The question for one token, of the engine or rank named `rank` if it can be chosen.

        None where it cannot be asked.
        """
        if model is None:
            return None
        return self.post(
            self._config.deep_probe.path or "/v1/completions",
            {
                "model": model,
                "prompt": self._config.deep_probe.prompt,
                "max_tokens": 1,
                "temperature": 0,
            },
            rank,
        )

    def completed(self, answer: Answer) -> Completion:
        """What came of `completion`."""
        if answer.good:
            return Completion.DONE if self.has_token(answer.json()) else Completion.FAILED
        if not answer.answered:
            return Completion.FAILED
        if b"paused" in answer.body[:2000]:
            return Completion.PAUSED
        overloaded = answer.status == HTTPStatus.TOO_MANY_REQUESTS
        its_fault = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not answer.unknown_here
        return Completion.FAILED if overloaded or its_fault else Completion.IMPOSSIBLE

    def has_token(self, body: Any) -> bool:
        """Whether the answer to `completion` holds one."""
        return isinstance(body, dict) and bool(body.get("choices"))

    def series(self, answers: Answers) -> Series:
        """The wanted series of the page of metrics; none where it is missing."""
        page = answers.get("metrics")
        return parse_series(page.body, self.wanted) if page and page.good else Series({})

    def post(self, path: str, body: object, rank: str = "") -> Question:
        """A question for one token; vLLM and SGLang choose the rank by this header."""
        headers = {"X-Data-Parallel-Rank": rank} if rank.isdecimal() else {}
        patience = self._config.deep_probe.timeout
        return Question("completion", path, "POST", body, headers, patience=patience)


def models_of(answers: Answers) -> tuple[str, ...] | None:
    """The names in an answer to OpenAI's `/v1/models`; None where there is no such answer."""
    answer = answers.get("models")
    listed = answer.field("data") if answer and answer.good else None
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed[:_MOST_MODELS] if isinstance(entry, dict)]
    return tuple(str(entry["id"]) for entry in entries if "id" in entry)


def added(*numbers: float | None) -> float | None:
    """The sum of the numbers that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
