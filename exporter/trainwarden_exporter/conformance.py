"""Holds a collector to what it has declared, so that a mistake of one cannot spoil the page."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

from trainwarden_exporter.collector import Family, Metric

_NUMBERS = frozenset({float, int, bool})


def conforming(collected: Iterable[Family], declared: Iterable[Metric]) -> tuple[Family, ...]:
    """`collected` as a tuple, if it is what `declared` promises.

    Raises TypeError for what would make the page lie, or fail and take other collectors with it:
    an undeclared or repeated family, other labels than declared, a repeated series, a label value
    that is not text in UTF-8, a value that is not a number.
    """
    contract = {metric.name: metric for metric in declared}
    found = tuple(collected)
    for family in found:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = contract.pop(name, None)
        if metric is None or metric.type != family.type:
            raise TypeError(f"{family.type} {name} is not declared, or was returned twice")
        _check_samples(family, metric)
    return found


def _check_samples(family: Family, metric: Metric) -> None:
    if family.metric.labels != metric.labels:
        raise TypeError(f"{metric.name} has other labels than declared: {family.metric.labels!r}")
    if not family.rows or _are_sound(family, metric):
        return
    seen = set()  # one of them is not
    for values, value in family.rows:
        if len(values) != len(metric.labels) or not _are_texts(values):
            raise TypeError(f"{metric.name} has wrong labels: {values!r}")
        if values in seen:
            raise TypeError(f"{metric.name} has the same series twice: {values!r}")
        if not _is_number(value):
            raise TypeError(f"{metric.name} has a value that is not a number: {value!r}")
        seen.add(values)


def _are_sound(family: Family, metric: Metric) -> bool:
    """Whether all samples are beyond doubt; looked at as a whole, which is much quicker."""
    series, numbers = zip(*family.rows, strict=True)
    return (
        {len(metric.labels)}.issuperset(map(len, series))
        and _are_texts(chain.from_iterable(series))
        and len(set(series)) == len(series)
        and _NUMBERS.issuperset(map(type, numbers))
        and _fit_float(numbers)
    )


def _fit_float(numbers: Iterable[float]) -> bool:
    try:
        array("d", numbers)
    except OverflowError:
        return False
    return True


def _are_texts(values: Iterable[object]) -> bool:
    # Bytes of an argument or a path that are not UTF-8 come from Python as lone surrogates.
    try:
        text = "".join(values)  # type: ignore[arg-type] # that is the question
        return text.isascii() or text.encode() is not None
    except (TypeError, UnicodeEncodeError):
        return False


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, float) or (isinstance(value, int) and float(value) is not None)
    except OverflowError:
        return False
