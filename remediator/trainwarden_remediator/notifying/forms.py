"""The form in which each kind of receiver takes a message. Pure.

What came with an alert stands where it is shown as it is: it makes no link, calls nobody by an @,
and is never part of a header or an address. Sources: api.slack.com/reference/block-kit
(`plain_text`, 3000 characters), discord.com/developers/docs/resources/webhook (2000 characters,
`allowed_mentions`), developers.mattermost.com/integrate/webhooks/incoming (16383 characters),
docs.ntfy.sh/publish (4096 bytes; headers `Title`, `Priority`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainwarden_remediator.notifying.messages import Item, Message
from trainwarden_remediator.notifying.models import Kind

_JSON = {"Content-Type": "application/json"}
_ASK = "What it did, and why: trainwarden-remediator journal"


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted."""

    body: bytes
    headers: Mapping[str, str]


def request(kind: Kind, message: Message) -> Request:
    """`message` as a receiver of that kind takes it."""
    return _FORMS[kind](message)


def _slack(message: Message) -> Request:
    text = cut(_lines(message, _plain, _plain), 2900)
    # `text` is what a phone shows beforehand, and it is not plain: only fixed words and the box.
    first = escaped_for_slack(f"Trainwarden on {message.box}: {message.title}")
    block = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
    return _as_json({"text": first, "blocks": [block]})


def _discord(message: Message) -> Request:
    text = cut(_lines(message, _strong, _code), 1900, "`")
    return _as_json({"content": text, "allowed_mentions": {"parse": []}})


def _mattermost(message: Message) -> Request:
    return _as_json({"text": cut(_lines(message, _strong, _code), 15000, "`")})


def _ntfy(message: Message) -> Request:
    body = _lines(message, _plain, _plain).encode()[:3900].decode(errors="ignore")
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        # A header holds fixed words alone.
        "Title": f"Trainwarden: {message.title}",
        "Priority": "urgent" if message.urgent else "default",
    }
    return Request(body.encode(), headers)


def _own(message: Message) -> Request:
    return _as_json(
        {
            "version": 1,
            "box": message.box,
            "title": message.title,
            "urgent": message.urgent,
            "occasions": list(message.occasions),
            "items": [{"title": item.title, **_named(item)} for item in message.items],
            "left_out": message.left_out,
        }
    )


_FORMS: Mapping[Kind, Callable[[Message], Request]] = {
    "slack": _slack,
    "discord": _discord,
    "mattermost": _mattermost,
    "ntfy": _ntfy,
    "json": _own,
}


def _named(item: Item) -> Mapping[str, str]:
    return {name.lower().replace(" ", "_"): value for name, value in item.values.items()}


def _lines(message: Message, strong: Callable[[str], str], value: Callable[[str], str]) -> str:
    lines = [f"{strong('Trainwarden')} on {value(message.box)}: {message.title}"]
    for item in message.items:
        if len(message.items) > 1 or item.title != message.title:
            lines += ["", strong(item.title)]
        lines += [f"{name}: {value(text)}" for name, text in item.values.items()]
    if message.left_out:
        lines += ["", f"and {message.left_out} more"]
    return "\n".join([*lines, "", _ASK])


def _plain(text: str) -> str:
    return text


def _strong(text: str) -> str:
    return f"**{text}**"


def _code(text: str) -> str:
    """`text` in a span of code, which it cannot end: nothing in it is markup or calls anybody."""
    return "`" + text.replace("`", "'") + "`"


def escaped_for_slack(text: str) -> str:
    """`text` without the three characters that begin anything in Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(text: str, length: int, fence: str = "") -> str:
    """`text`, at whole lines if it is too long; a span that `fence` began is never left open."""
    if len(text) <= length:
        return text
    kept = text[:length].rpartition("\n")[0] or text[: length - len(fence)] + fence
    return f"{kept}\n(cut)"


def _as_json(content: Mapping[str, object]) -> Request:
    return Request(json.dumps(content).encode(), _JSON)
