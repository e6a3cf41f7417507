"""Any server with one health URL: judged by its HTTP status or by a field of its JSON."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from trainwarden_exporter.inference.engine_stats import EngineStats, Liveness
from trainwarden_exporter.inference.engines.base import InferenceEngine
from trainwarden_exporter.inference.http_messages import HttpRequest, HttpResponse, HttpResponses


class GenericEngine(InferenceEngine):
    name = "generic"
    liveness_path = ""
    probes_completions = False
    answers_while_busy = False
    completion_path = None
    default_model = "default"
    passive_requests = rare_requests = ()

    def url_of(self, request: HttpRequest) -> str:
        if not request.path:
            return self._url
        scheme, address, *_ = urlsplit(self._url)
        return urlunsplit((scheme, address, request.path, "", ""))

    def parse_liveness(self, response: HttpResponse) -> Liveness:
        liveness = super().parse_liveness(response)
        if liveness not in (Liveness.SERVING, Liveness.BAD):
            return liveness
        expected = self._config.status
        status_matches = response.succeeded if expected is None else response.status == expected
        return Liveness.SERVING if status_matches and self._matches_json(response) else Liveness.BAD

    def parse_stats(self, responses: HttpResponses) -> EngineStats:
        return EngineStats()

    def _matches_json(self, response: HttpResponse) -> bool:
        if not self._config.json_field:
            return True
        value = response.field(*self._config.json_field.split("/"))
        wanted = self._config.json_value
        if wanted is None:
            return value is not None
        return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
