"""The message format of each kind of receiver. Pure.

Text from an alert appears only where it is shown verbatim: it creates no link and no @-mention, and
never becomes part of a header or a URL. Sources: api.slack.com/reference/block-kit
(`plain_text`, 3000 characters), discord.com/developers/docs/resources/webhook (2000 characters,
`allowed_mentions`), developers.mattermost.com/integrate/webhooks/incoming (16383 characters),
docs.ntfy.sh/publish (4096 bytes; headers `Title`, `Priority`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainwarden_remediator.config.notifications import ReceiverKind
from trainwarden_remediator.notify.messages import Message, MessageItem

_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class PostRequest:
    """The body and headers of a POST request."""

    body: bytes
    headers: Mapping[str, str]


def build_request(kind: ReceiverKind, message: Message) -> PostRequest:
    """Formats `message` for a kind of receiver."""
    return _FORMATTERS[kind](message)


def _slack(message: Message) -> PostRequest:
    text = truncate(_lines(message, _plain, _plain), 2900)
    # Phones preview `text`, which may contain markup: only fixed words and the instance.
    first = escape_for_slack(f"Trainwarden on {message.instance}: {message.title}")
    block = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
    return _as_json({"text": first, "blocks": [block]})


def _discord(message: Message) -> PostRequest:
    text = truncate(_lines(message, _strong, _code), 1900, "`")
    return _as_json({"content": text, "allowed_mentions": {"parse": []}})


def _mattermost(message: Message) -> PostRequest:
    return _as_json({"text": truncate(_lines(message, _strong, _code), 15000, "`")})


def _ntfy(message: Message) -> PostRequest:
    body = _lines(message, _plain, _plain).encode()[:3900].decode(errors="ignore")
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        # Only fixed words in a header.
        "Title": f"Trainwarden: {message.title}",
        "Priority": "urgent" if message.urgent else "default" if message.rings else "low",
    }
    return PostRequest(body.encode(), headers)


def _generic_json(message: Message) -> PostRequest:
    return _as_json(
        {
            "version": 1,
            "instance": message.instance,
            "title": message.title,
            "urgent": message.urgent,
            "rings": message.rings,
            "events": list(message.events),
            "items": [{"title": item.title, **_fields(item)} for item in message.items],
            "left_out": message.left_out,
        }
    )


_FORMATTERS: Mapping[ReceiverKind, Callable[[Message], PostRequest]] = {
    "slack": _slack,
    "discord": _discord,
    "mattermost": _mattermost,
    "ntfy": _ntfy,
    "json": _generic_json,
}


def _fields(item: MessageItem) -> Mapping[str, str]:
    return {name.lower().replace(" ", "_"): value for name, value in item.values.items()}


def _lines(message: Message, strong: Callable[[str], str], value: Callable[[str], str]) -> str:
    lines = [f"{strong('Trainwarden')} on {value(message.instance)}: {message.title}"]
    for item in message.items:
        if len(message.items) > 1 or item.title != message.title:
            lines += ["", strong(item.title)]
        lines += [f"{name}: {value(text)}" for name, text in item.values.items()]
    if message.left_out:
        lines += ["", f"and {message.left_out} more"]
    return "\n".join([*lines, "", f"What it did, and why: {message.command}"])


def _plain(text: str) -> str:
    return text


def _strong(text: str) -> str:
    return f"**{text}**"


def _code(text: str) -> str:
    """Formats `text` as a code span that it cannot end: no markup or mention in it takes effect."""
    return "`" + text.replace("`", "'") + "`"


def escape_for_slack(text: str) -> str:
    """Escapes the three control characters of Slack's markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def truncate(text: str, length: int, fence: str = "") -> str:
    """Truncates `text` at a line end, or within its first line, then closed with `fence`."""
    if len(text) <= length:
        return text
    kept = text[:length].rpartition("\n")[0] or text[: length - len(fence)] + fence
    return f"{kept}\n(cut)"


def _as_json(content: Mapping[str, object]) -> PostRequest:
    return PostRequest(json.dumps(content).encode(), _JSON)
