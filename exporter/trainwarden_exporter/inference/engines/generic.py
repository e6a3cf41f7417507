"""Any server that says by one address whether it is well: by its status, or a field of its JSON."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

from trainwarden_exporter.inference.engines.base import Engine, Stage
from trainwarden_exporter.inference.questions import Answer, Answers, Question
from trainwarden_exporter.inference.reading import Life, Reading


class Generic(Engine):
    name = "generic"
    deep = False

    @property
    def liveness(self) -> Question:
        return Question("life", "", patience=None)

    def address(self, question: Question) -> str:
        if not question.path:
            return self._url
        scheme, place, *_ = urlsplit(self._url)
        return urlunsplit((scheme, place, question.path, "", ""))

    def life(self, answer: Answer) -> Life:
        life = super().life(answer)
        if life is Life.BAD and answer.status == self._config.status:
            life = Life.SERVING
        elif life is Life.SERVING and self._config.status not in (None, answer.status):
            life = Life.BAD
        return life if life is not Life.SERVING or self._says_so(answer) else Life.BAD

    def questions(self, stage: Stage, answers: Answers, *, failed: bool) -> Iterable[Question]:
        return ()

    def read(self, answers: Answers) -> Reading:
        return Reading()

    def completion(self, model: str | None, rank: str = "") -> Question | None:
        if self._config.deep_probe.path is None:
            return None
        return super().completion(model or "default", rank)

    def _says_so(self, answer: Answer) -> bool:
        if not self._config.json_field:
            return True
        value = answer.field(*self._config.json_field.split("/"))
        wanted = self._config.json_value
        if wanted is None:
            return value is not None
        return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
