"""Colours, and what a number is shown as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

GOOD, CALM, WARNING, CRITICAL, UNKNOWN = "green", "blue", "yellow", "red", "#8e8e8e"
"""Never the only sign: what is coloured also has a word or a number."""
LIMIT = "semi-dark-red"


@dataclass(frozen=True, slots=True)
class Word:
    """What a number means."""

    number: int
    text: str
    colour: str


def words(*pairs: tuple[str, str]) -> tuple[Word, ...]:
    """What 0, 1, 2 and so on mean: pairs of text and colour."""
    return tuple(Word(number, *pair) for number, pair in enumerate(pairs))


def codes(meanings: Sequence[Word]) -> tuple[str, ...]:
    """The values of a label whose words these are."""
    return tuple(word.text.replace(" ", "_") for word in meanings)


Steps = Sequence[tuple[float, str]]
"""(from which value on, colour), ascending, after the colour of all that is below."""


@dataclass(frozen=True, slots=True)
class Scale:
    """By which values a panel changes its colour."""

    base: str = GOOD
    steps: Steps = ()

    def builder(self) -> builders.ThresholdsConfig:
        steps = [models.Threshold(value=None, color=self.base)]
        steps += [models.Threshold(value=value, color=colour) for value, colour in self.steps]
        return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


PLAIN = Scale(CALM)
NONE_IS_GOOD = Scale(GOOD, ((1, CRITICAL),))
"""Thresholds of a count that should be 0."""


def rising(warning: float | None, critical: float | None) -> Scale:
    """The more, the worse."""
    steps = [(warning, WARNING), (critical, CRITICAL)]
    return Scale(GOOD, tuple((value, colour) for value, colour in steps if value is not None))


def falling(warning: float | None, critical: float | None) -> Scale:
    """The less, the worse."""
    if warning is None:
        return Scale(CRITICAL, ((critical or 0, GOOD),))
    if critical is None:
        return Scale(WARNING, ((warning, GOOD),))
    return Scale(CRITICAL, ((critical, WARNING), (warning, GOOD)))


def mappings(meanings: Sequence[Word]) -> list[models.ValueMapping]:
    """`meanings` as Grafana has them."""
    options = {
        str(word.number): models.ValueMappingResult(text=word.text, color=word.colour, index=place)
        for place, word in enumerate(meanings)
    }
    return [models.ValueMap(options=options)] if options else []


def coloured(text: str, colour: str) -> models.ValueMap:
    """A label of a table that has a colour."""
    return models.ValueMap(options={text: models.ValueMappingResult(color=colour, index=0)})


SEVERITY_COLOURS = {"critical": CRITICAL, "warning": WARNING, "info": CALM}
