"""`POST /heartbeat/<name>`: where a heartbeat is sent to."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from trainwarden_exporter.progress.heartbeats import (
    AmbiguousHeartbeatError,
    Heartbeats,
    TooManyHeartbeatsError,
    UnknownHeartbeatError,
)
from trainwarden_exporter.progress.lines import parse_count
from trainwarden_exporter.units import Name, parse_duration

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def heartbeat_routes(heartbeats: Callable[[], Heartbeats]) -> list[web.RouteDef]:
    """The route; `heartbeats` are those in force.

    `?step=`, `?interval=` (as `90` or `5m`) and `?run=` may be given; a body is never read. 204;
    400 for what cannot be understood, 404 for a name that is not awaited, 429 when there is no more
    room for names that are not configured.
    """

    async def beat(request: web.Request) -> web.Response:
        try:
            name, run = _name(request.match_info["name"]), request.query.get("run")
            step, interval = request.query.get("step"), request.query.get("interval")
            heartbeats().beat(
                name,
                None if run is None else _name(run),
                step=None if step is None else _step(step),
                interval=None if interval is None else _interval(interval),
            )
        except (ValueError, AmbiguousHeartbeatError) as error:
            return _answer(request, 400, f"{error}\n")
        except UnknownHeartbeatError as error:
            return _answer(request, 404, f"{error}\n")
        except TooManyHeartbeatsError as error:
            return _answer(request, 429, f"{error}\n")
        return _answer(request, 204)

    return [web.post("/heartbeat/{name}", beat)]


def _answer(request: web.Request, status: int, text: str | None = None) -> web.Response:
    response = web.Response(status=status, text=text)
    if request.can_read_body:
        response.force_close()  # rather than to read what nobody wants to the end
    return response


def _name(text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise ValueError("not a name: letters, digits and . _ : - alone") from None


def _step(text: str) -> int:
    step = parse_count(text)
    if step is None:
        raise ValueError("step is not a whole number")
    return step


def _interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds < float("inf"):
        raise ValueError("interval is not a time")
    return seconds
