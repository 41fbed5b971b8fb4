"""The invariants of credit, for any seed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credit.invariants import INVARIANTS


@pytest.mark.parametrize("name", INVARIANTS)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_invariant(name: str, seed: int) -> None:
    INVARIANTS[name](seed)
