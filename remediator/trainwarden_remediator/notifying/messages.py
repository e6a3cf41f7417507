"""What a person is told, in words of our own. Pure.

Of an alert only its name, run and worker are repeated, as values beside fixed words: each form
shows them as plain text, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden_exporter.wording import moment, plural
from trainwarden_remediator import story
from trainwarden_remediator.decision import GIVEN_UP, STUCK
from trainwarden_remediator.notifying.models import URGENT, Occasion
from trainwarden_remediator.records import Event

VALUE_LENGTH = 300
"""Characters of a value that are shown."""

TOGETHER = 8
"""So many things are told in one message; of more, only how many there are."""

TITLES: Mapping[Occasion, str] = {
    "gave_up": "gave up, a person is needed",
    "held": "nothing is restarted while this lasts, a person is needed",
    "breaker": "too many actions, none is begun until a person allows it",
    "asked": "a person is asked to look",
    "silent": "no alerts come any more, a person is needed",
    "acted": "acting",
    "healed": "healed",
    "not_healed": "an action has not helped",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell one receiver. `told` is the line of the journal that it is about.

    `tried` are the actions about its incident that have ended: their kinds, and what came of each.
    """

    id: int
    receiver: str
    occasion: Occasion
    told: Event
    tried: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is told: fixed words, and values by what they are."""

    title: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent at once. `title` and `foot` are fixed words, but for the name of the box."""

    title: str
    items: Sequence[Item]
    occasions: Sequence[Occasion] = ()
    urgent: bool = False
    left_out: int = 0
    """How many more there are than `items`."""
    box: str = ""


def occasion(event: Event) -> Occasion | None:
    """What a line of the journal is an occasion for, if for anything."""
    facts = event.facts
    match event.kind:
        case "decision" if facts.get("reason") in GIVEN_UP | STUCK:
            return "gave_up"
        case "decision" if facts.get("reason") == "hold":
            return "held"
        case "breaker":
            return "breaker"
        case "asked" | "silent":
            return "asked" if event.kind == "asked" else "silent"
        case "intent":
            return "acted"
        case "outcome":
            return "healed" if facts.get("outcome") == "healed" else "not_healed"
    return None


def subject(told: Occasion, event: Event) -> str:
    """What is told of only once for each occasion."""
    if told in ("acted", "healed", "not_healed"):
        return f"action {event.action}"
    # The breaker that a person has closed may latch again for the same incident.
    once = told != "breaker" and event.incident is not None
    return f"incident {event.incident}" if once else f"line {event.id}"


def message(notices: Sequence[Notice], *, box: str, mode: str) -> Message:
    """One message of them all, the most pressing first."""
    ranked = sorted(notices, key=lambda one: (one.occasion not in URGENT, one.id))
    occasions = tuple(dict.fromkeys(notice.occasion for notice in ranked))
    if len(ranked) == 1:
        title = TITLES[ranked[0].occasion]
    else:
        title = f"{plural(len(ranked), 'thing')} to tell"
    return Message(
        title=title,
        items=[_item(notice, mode) for notice in ranked[:TOGETHER]],
        occasions=occasions,
        urgent=any(one in URGENT for one in occasions),
        left_out=max(len(ranked) - TOGETHER, 0),
        box=shown(box),
    )


def trial(*, box: str) -> Message:
    """What is sent by a person who tries whether a message arrives."""
    told = Item("a trial, nothing is wrong", {"Sent by": "trainwarden-remediator notify-test"})
    return Message("this is a trial", [told], box=shown(box))


def bare(full: Message) -> Message:
    """`full` without any value: what is sent where a receiver has refused it."""
    return replace(full, items=[Item(item.title) for item in full.items])


def _item(notice: Notice, mode: str) -> Item:
    event = notice.told
    values = {
        "Alert": event.alert,
        "Worker": story.worker(event),
        "What": story.sentence(event),
        "Tried": _tried(notice.tried),
        "When": moment(event.at),
        "Incident": "" if event.incident is None else f"#{event.incident}",
        "Mode": "observe, nothing is touched" if mode == "observe" else "",
    }
    return Item(
        TITLES[notice.occasion], {name: shown(value) for name, value in values.items() if value}
    )


def _tried(actions: Sequence[tuple[str, str]]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for action in actions:
        counts[action] = counts.get(action, 0) + 1
    return "; ".join(
        f"{kind} {outcome.replace('_', ' ')}" + (f", {count} times" if count > 1 else "")
        for (kind, outcome), count in counts.items()
    )


def shown(text: str) -> str:
    """`text` as one short line."""
    line = story.printable(" ".join(text.split()))
    return (
        line if len(line) <= VALUE_LENGTH else f"{line[: VALUE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
