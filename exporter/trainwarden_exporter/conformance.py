"""Holds a collector to what it has declared, so that a mistake of one cannot spoil the page."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.collector import Family, Metric


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
    seen = set()
    for sample in family.samples:
        values = tuple(map(sample.labels.get, metric.labels))
        if len(sample.labels) != len(metric.labels) or not _are_texts(values):
            raise TypeError(f"{metric.name} has wrong labels: {sample.labels!r}")
        if values in seen:
            raise TypeError(f"{metric.name} has the same series twice: {sample.labels!r}")
        if not _is_number(sample.value):
            raise TypeError(f"{metric.name} has a value that is not a number: {sample.value!r}")
        seen.add(values)


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
