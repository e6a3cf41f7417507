"""Validates collected samples against the declared metrics."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.scrape.collector import Family, Metric


def validated(collected: Iterable[Family], declared: Iterable[Metric]) -> tuple[Family, ...]:
    """Returns `collected` as a tuple if it conforms to `declared`.

    Raises TypeError for undeclared or repeated families, undeclared labels, repeated series, label
    values that are not valid UTF-8 text, and values that are not numbers: they would falsify the
    page, or fail it together with other collectors.
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
    seen = set()
    for values, value in family.rows:
        if len(values) != len(metric.labels) or not _are_strings(values):
            raise TypeError(f"{metric.name} has wrong labels: {values!r}")
        if values in seen:
            raise TypeError(f"{metric.name} has the same series twice: {values!r}")
        if not _is_number(value):
            raise TypeError(f"{metric.name} has a value that is not a number: {value!r}")
        seen.add(values)


def _are_strings(values: Iterable[object]) -> bool:
    # Python decodes bytes that are not UTF-8 in arguments and paths to lone surrogates.
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
