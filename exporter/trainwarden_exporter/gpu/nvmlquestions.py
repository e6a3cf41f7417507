"""Puts single questions to NVML; what is not supported is None.

Facts on functions and value types: NVIDIA's NVML API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.gpu.nvmlerrors import NOT_SUPPORTED, ends_the_look, reject

Handle = Any
"""A device, as the library knows it; good until the driver is let go of, in every thread."""

_VALUE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}


class Questions:
    """Asks the library, and notes which questions it failed at."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer; None where it is not supported, or fails without the device being lost."""
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in NOT_SUPPORTED:
                return None
            if ends_the_look(error):
                reject(error)
            self.failures.append(function.__name__)
            return None
        except UnicodeDecodeError:  # a text that the device got wrong
            self.failures.append(function.__name__)
            return None


class DeviceQuestions(Questions):
    """Asks about one GPU or one part of it."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self._handle = handle

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return super().ask(function, self._handle, *arguments)

    def ask_first(self, function: Callable[..., Any]) -> int | None:
        """Of an answer that has the present state first, and the pending one after it."""
        answer = self.ask(function)
        return None if answer is None else int(answer[0])

    def scaled(self, factor: float, function: Callable[..., Any]) -> float | None:
        answer = self.ask(function)
        return None if answer is None else round(answer * factor, 3)

    def flag(self, function: Callable[..., Any]) -> bool | None:
        answer = self.ask(function)
        return None if answer is None else bool(answer)

    def each(
        self, codes: Mapping[str, int], function: Callable[..., Any], *, factor: int = 1
    ) -> dict[str, float]:
        answers = {name: self.ask(function, code) for name, code in codes.items()}
        return {name: answer * factor for name, answer in answers.items() if answer is not None}

    def fields(self, *ids: int | tuple[int, int]) -> list[int | float | None]:
        """Values by field, or by field and scope."""
        answers = self.ask(pynvml.nvmlDeviceGetFieldValues, list(ids))
        if answers is None:
            return [None] * len(ids)
        return [_field_value(answer) for answer in answers]

    def either(self, newer: Callable[..., Any], older: Callable[..., Any]) -> Any:
        answer = self.ask(newer)
        return self.ask(older) if answer is None else answer


def _field_value(answer: Any) -> int | float | None:
    member = _VALUE_MEMBERS.get(answer.valueType)
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    value: int | float = getattr(answer.value, member)
    return value
