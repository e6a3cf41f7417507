"""Calls single NVML functions; unsupported values are None.

Facts on functions and value types: NVIDIA's NVML API reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.exceptions import CollectError

T = TypeVar("T")

Handle = Any
"""The library's handle of a device; valid in all threads until the library is shut down."""

_VALUE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}


class NvmlCalls:
    """Calls NVML functions and records the names of failed calls."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result; None if unsupported or failed. Raises an NvmlError if fatal."""
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in NOT_SUPPORTED:
                return None
            if error.value in _ABSENT | _LOST | _VOID:
                raise_nvml_error(error)
        except UnicodeDecodeError:
            pass  # the device returned an invalid text
        self.failures.append(function.__name__)
        return None


class DeviceCalls(NvmlCalls):
    """Calls functions of one GPU or MIG instance."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self._handle = handle

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return super().call(function, self._handle, *arguments)

    def converted(self, convert: Callable[[Any], T], function: Callable[..., Any]) -> T | None:
        result = self.call(function)
        return None if result is None else convert(result)

    def fields(self, *ids: int | tuple[int, int]) -> list[int | float | None]:
        """Returns the values of fields, given by id or by id and scope."""
        results = self.call(pynvml.nvmlDeviceGetFieldValues, list(ids))
        return [None] * len(ids) if results is None else [_field_value(one) for one in results]

    def first_supported(self, newer: Callable[..., Any], older: Callable[..., Any]) -> Any:
        result = self.call(newer)
        return self.call(older) if result is None else result


def _field_value(result: Any) -> int | float | None:
    member = _VALUE_MEMBERS.get(result.valueType)
    if result.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    value: int | float = getattr(result.value, member)
    return value


class NvmlError(CollectError):
    """A call of the library failed."""


class DriverAbsentError(NvmlError):
    """No driver: the library or the kernel module is missing."""


class DriverFailedError(NvmlError):
    """The driver is present but unusable, or its session has become invalid."""


class GpuLostError(NvmlError):
    """The GPU has fallen off the bus or needs a reset."""


NOT_SUPPORTED = frozenset(
    {
        pynvml.NVML_SUCCESS,  # pynvml raises it if there are no samples
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # an older driver does not know the request
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
    }
)
_ABSENT = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
_LOST = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    }
)
_VOID = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH})


def require(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a pynvml function. Raises an NvmlError if it fails."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise_nvml_error(error)


def raise_nvml_error(error: Any) -> NoReturn:
    """Raises the NvmlError that corresponds to a pynvml.NVMLError."""
    if error.value in _ABSENT:
        raise DriverAbsentError(str(error)) from error
    if error.value in _LOST:
        raise GpuLostError(str(error)) from error
    if error.value in NOT_SUPPORTED:
        raise NvmlError(f"not supported: {error}") from error
    raise DriverFailedError(str(error)) from error
