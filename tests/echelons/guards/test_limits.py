"""The limits of a tree have a range, and cannot be changed or misspelt."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from echelons import Limits


@pytest.mark.parametrize("depth", [1, 2, 32])
def test_a_depth_in_its_range_is_kept(depth: int) -> None:
    assert Limits(depth=depth).depth == depth


def test_a_tree_may_have_32_levels_if_nobody_says_less() -> None:
    assert Limits().depth == 32


@pytest.mark.parametrize("depth", [0, -1, 33, 1.5, "many", None, float("nan")])
def test_a_depth_out_of_its_range_is_refused(depth: Any) -> None:
    with pytest.raises(ValidationError, match="depth"):
        Limits(depth=depth)


def test_a_misspelt_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="depht"):
        Limits.model_validate({"depht": 3})


def test_a_limit_cannot_be_changed_afterwards() -> None:
    limits = Limits(depth=3)

    with pytest.raises(ValidationError):
        limits.depth = 5
    assert limits.depth == 3
