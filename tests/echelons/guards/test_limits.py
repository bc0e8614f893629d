"""The limits of a tree have a range, and cannot be changed or misspelt."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from echelons import BreakerPolicy, DelegationPolicy, Limits
from echelons.errors import ConfigurationError, InvalidSetting


@pytest.mark.parametrize("depth", [1, 2, 32])
def test_a_depth_in_its_range_is_kept(depth: int) -> None:
    assert Limits(depth=depth).depth == depth


def test_tree_may_have_32_levels_by_default() -> None:
    assert Limits().depth == 32


@pytest.mark.parametrize("depth", [0, -1, 33, 1.5, "many", None, float("nan")])
def test_a_depth_out_of_its_range_is_refused(depth: Any) -> None:
    with pytest.raises(InvalidSetting, match="depth") as refused:
        Limits(depth=depth)

    assert (refused.value.owner, refused.value.setting) == ("Limits", "depth")
    assert refused.value.value is depth
    assert isinstance(refused.value, ConfigurationError)


def test_refused_limit_names_value_range_and_remedy() -> None:
    with pytest.raises(InvalidSetting) as refused:
        Limits(depth=33)

    assert str(refused.value) == (
        "Limits(depth=33): Input should be less than or equal to 32; leave it out for the default"
    )


def test_a_misspelt_limit_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"depht.*there is no such setting, but depth, steps"):
        Limits(depht=3)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="depht"):
        Limits.model_validate({"depht": 3})


def test_a_limit_cannot_be_changed_afterwards() -> None:
    limits = Limits(depth=3)

    with pytest.raises(ValidationError):
        limits.depth = 5
    assert limits.depth == 3


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((Limits, name) for name in Limits.model_fields),
        *((BreakerPolicy, name) for name in ("failures", "seconds", "intensity", "period")),
        *((DelegationPolicy, name) for name in ("timeout", "max_hops", "threshold")),
        (DelegationPolicy, "request_timeout"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_number(owner: Any, name: str, value: bool) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}={value}.*no bool"):
        owner(**{name: value})
    assert DelegationPolicy(splitting=False).splitting is False


@pytest.mark.parametrize("refusals", [0, -1, 1.5, "many"])
def test_a_limit_of_refusals_is_at_least_one_or_none(refusals: Any) -> None:
    assert Limits(max_refusals=None).max_refusals is None
    with pytest.raises(InvalidSetting, match="max_refusals"):
        Limits(max_refusals=refusals)
