"""`Spawn` is checked when it is made, and is only ever narrowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Permissions, Spawn
from echelons.errors import InvalidSetting

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple)
RULES = st.builds(
    Spawn,
    kinds=st.lists(st.sampled_from(["mortal", "drone"]), min_size=1, unique=True).map(tuple),
    profiles=NAMES,
    tools=NAMES,
    at_once=st.integers(1, 9),
    total=st.integers(1, 9),
    levels=st.integers(1, 4),
)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("kinds", wrong) for wrong in ("mortal", ["monitor"], [], 7, None)),
        *((name, wrong) for name in ("profiles", "tools") for wrong in ("a", [""], [7], 7)),
        *((name, wrong) for name in ("at_once", "total") for wrong in (0, -1, 10_001, 1.5)),
        *(("levels", wrong) for wrong in (0, 33, True, None)),
        ("level", 1),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(field: str, wrong: Any) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Spawn(**{field: wrong})

    assert refused.value.setting == field


def test_agents_may_not_spawn_by_default() -> None:
    assert Permissions().spawn is None


@given(RULES, st.none() | RULES)
def test_what_is_spawned_may_spawn_no_more_and_one_level_less(
    rules: Spawn, own: Spawn | None
) -> None:
    below = rules.narrow(own)

    if below is None:
        wanted = (own or rules).kinds
        assert rules.levels == 1 or not {*wanted} & {*rules.kinds}
        return
    assert below.levels < rules.levels
    assert rules.find_wider(below) is None
    assert own is None or own.find_wider(below) is None


@given(RULES, RULES)
def test_wider_rules_are_found_where_something_is_allowed_that_is_not_above(
    above: Spawn, own: Spawn
) -> None:
    wider = above.find_wider(own)

    assert (wider is None) == (above.intersect(own) == own)
    if wider:
        field, value = wider
        limit = getattr(above, field)
        assert value not in limit if isinstance(limit, tuple) else value > limit
