"""When two anchors are the same state: equality by content, type and shape."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from agentrl.core.errors import DataError

__all__ = ["anchor_key", "reference_anchor_key"]


def anchor_key(anchor: Any) -> Hashable:
    """A hashable key, equal exactly for equal anchors.

    Equal means: same content, same type, same shape. ``1``, ``True`` and ``1.0`` differ, ``"1"``
    and ``1`` differ, a 2x3 array differs from a 3x2 one and from a list. The order of a mapping
    does not matter. NaN equals NaN, and -0.0 equals 0.0. Lists and tuples are the same sequence,
    because a stored tuple comes back as a list. NumPy scalars count as the Python values they hold.

    Args:
        anchor: JSON-like value: str, bool, int, float, None (inside a container), bytes, list,
            tuple, mapping, set, or a NumPy array or scalar.

    Raises:
        DataError: another type, whose equality we cannot know.
    """
    kind = type(anchor)
    if kind is str:
        return anchor  # type: ignore[no-any-return]  # bare strings: the common case, kept fast
    if anchor is None or kind in (bool, int, bytes):
        return (kind.__name__, anchor)
    if kind is float:
        return ("float", "nan" if anchor != anchor else anchor)
    if isinstance(anchor, np.generic):
        return anchor_key(anchor.item())
    if isinstance(anchor, np.ndarray):
        content = tuple(anchor_key(one) for one in anchor.ravel().tolist())
        return ("array", anchor.dtype.str, anchor.shape, content)
    if isinstance(anchor, list | tuple):
        return ("sequence", tuple(anchor_key(one) for one in anchor))
    if isinstance(anchor, Mapping):
        pairs = ((anchor_key(key), anchor_key(value)) for key, value in anchor.items())
        return ("mapping", frozenset(pairs))
    if isinstance(anchor, set | frozenset):
        return ("set", frozenset(anchor_key(one) for one in anchor))
    if isinstance(anchor, str):  # a subclass, such as an enum of strings, counts as its content
        return str.__str__(anchor)
    if isinstance(anchor, int):
        return anchor_key(int(anchor))
    if isinstance(anchor, float):
        return anchor_key(float(anchor))
    raise DataError(
        f"an anchor holds {anchor!r} of type {kind.__name__}, expected a JSON-like value "
        "(str, number, bool, list, mapping) or a NumPy array; make the environment give "
        "its state as text or plain data"
    )


def reference_anchor_key(anchor: Any) -> Hashable:
    """The equality of the public GiGPO code, bugs included (``reference=True``).

    ``1 == 1.0 == True``; arrays lose their shape and equal a flat list of the same content; NaN
    never equals itself.
    """
    if isinstance(anchor, np.ndarray):
        return tuple(anchor.ravel().tolist())
    if isinstance(anchor, list | tuple):
        return tuple(reference_anchor_key(one) for one in anchor)
    if isinstance(anchor, Mapping):
        return tuple(sorted((key, reference_anchor_key(one)) for key, one in anchor.items()))
    if isinstance(anchor, float) and anchor != anchor:
        return object()  # equal to nothing, as NaN is
    return anchor  # type: ignore[no-any-return]
