"""Configures logging: one line per record on standard error, as logfmt or JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["logfmt", "json"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
FORMATS: tuple[Format, ...] = ("logfmt", "json")

# Attributes of every record; others come from `extra`.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}


def configure(
    level: Level = "info",
    format: Format = "logfmt",  # noqa: A002 - named as its flag, --log.format
    *,
    stream: TextIO | None = None,
) -> None:
    """Sends records of `level` and above to `stream`, standard error when None.

    A line has `ts` (RFC 3339, UTC, milliseconds), `level`, `logger`, `msg`, the fields from
    `extra`, and `exception` with the traceback. Requests are not logged: frequent scrapes would
    hide everything else. May be called again; the last call wins.
    """
    render = render_json if format == "json" else render_logfmt
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Formatter(render))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    logging.getLogger("aiohttp.access").disabled = True


class _Formatter(logging.Formatter):
    """Formats a record with its fields."""

    def __init__(self, render: Callable[[Mapping[str, Any]], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        facts = _facts(record)
        if record.stack_info:
            facts["stack_info"] = record.stack_info
        if record.exc_info and record.exc_info[0] is not None:
            facts["exception"] = self.formatException(record.exc_info)
        return self._render(facts)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    moment = datetime.fromtimestamp(record.created, UTC)
    facts: dict[str, Any] = {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    for key, value in vars(record).items():
        if key not in _STANDARD_ATTRIBUTES:
            facts[f"{key}_" if key in facts else key] = value
    return facts


def render_json(event: Mapping[str, Any]) -> str:
    """Returns `event` as one JSON object; values without a JSON form become text."""
    return json.dumps(event, ensure_ascii=False, default=str)


def render_logfmt(event: Mapping[str, Any]) -> str:
    """Returns `event` as `key=value` pairs; quotes a value as in JSON unless it is a plain word.

    So any value stays on one line.
    """
    return " ".join(f"{_key(key)}={_value(value)}" for key, value in event.items())


def _key(key: object) -> str:
    return "".join(c if c.isprintable() and c not in ' ="' else "_" for c in str(key))


def _value(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
    text = str(value)
    if text and text.isprintable() and not set(text) & set(' ="\\'):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
