"""Border checks of the pure functions: rank, shape, finite values, ranges. All raise DataError."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class RowError(DataError):
    """The data of one row is wrong.

    Attributes:
        row: Its position among the rows that were given, so that a caller can say whose it is.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def floats(name: str, values: npt.ArrayLike, *, like: Sized | None = None, rank: int = 1) -> Array:
    """``values`` as a finite float64 array of ``rank``, of the length of ``like`` if given."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers in a rectangular array: {error}") from None
    if array.ndim != rank:
        raise DataError(f"{name} must have {rank} dimension(s), got shape {array.shape}")
    _same_length(name, array, like)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(
            f"{name} must be finite, got {array[where]} at {where if rank > 1 else where[0]}; "
            "exclude what could not be scored, never fill it in"
        )
    return array


def integers(name: str, values: npt.ArrayLike, *, like: Sized | None = None) -> Labels:
    """``values`` as a 1-D int64 array, of the length of ``like`` if given."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{name} must be 1-D integers, got shape {array.shape} of {array.dtype}; "
            "number ids by first appearance (functional.number)"
        )
    _same_length(name, array, like)
    return array.astype(np.int64, copy=False)


def flags(name: str, values: npt.ArrayLike, *, like: Sized | None = None) -> Flags:
    """``values`` as a 1-D bool array, of the length of ``like`` if given."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.bool_)
    if array.ndim != 1 or array.dtype != np.bool_:
        raise DataError(f"{name} must be 1-D booleans, got shape {array.shape} of {array.dtype}")
    _same_length(name, array, like)
    return array


def within(name: str, value: float, low: float, high: float) -> float:
    """``value`` if it lies in [low, high]."""
    if not low <= value <= high:
        raise DataError(f"{name} must be in [{low:g}, {high:g}], got {value}")
    return float(value)


def _same_length(name: str, array: npt.NDArray[np.generic], like: Sized | None) -> None:
    if like is not None and len(array) != len(like):
        raise DataError(f"{name} must have length {len(like)}, got {len(array)}")
