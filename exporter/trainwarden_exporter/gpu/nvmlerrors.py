"""What NVML's errors mean; the files whose names begin with `nvml` alone call pynvml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.exceptions import CollectError


class NvmlError(CollectError):
    """The library could not do what it was asked."""


class DriverAbsentError(NvmlError):
    """There is no driver: no library, or no kernel module."""


class DriverFailedError(NvmlError):
    """The driver is there and cannot be used, or what was begun with it is void."""


class GpuLostError(NvmlError):
    """The GPU has fallen off the bus, or does nothing before it is reset."""


NOT_SUPPORTED = frozenset(
    {
        pynvml.NVML_SUCCESS,  # pynvml raises it where there are no samples
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # of what an older driver does not know
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


def demand(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a function of pynvml. Raises an NvmlError where there is none."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        reject(error)


def ends_the_look(error: Any) -> bool:
    """Whether there is no use in asking on: the device or the driver has gone."""
    return error.value in _ABSENT | _LOST | _VOID


def reject(error: Any) -> NoReturn:
    """Raise the NvmlError that a pynvml.NVMLError stands for."""
    if error.value in _ABSENT:
        raise DriverAbsentError(str(error)) from error
    if error.value in _LOST:
        raise GpuLostError(str(error)) from error
    if error.value in NOT_SUPPORTED:
        raise NvmlError(f"not supported: {error}") from error
    raise DriverFailedError(str(error)) from error
