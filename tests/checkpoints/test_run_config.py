"""Namespaces are joined and split without loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelons.checkpoints.run_config import (
    build_child_namespace,
    get_namespace_depth,
    split_namespace,
)
from echelons.tree.names import NAME_PATTERN

steps = st.lists(
    st.tuples(st.from_regex(NAME_PATTERN, fullmatch=True), st.uuids().map(str)), max_size=6
)


@given(steps)
def test_a_namespace_has_a_part_for_every_step_down(way: list[tuple[str, str]]) -> None:
    namespace = ""
    for node, task in way:
        namespace = build_child_namespace(namespace, node, task)

    assert split_namespace(namespace) == [f"{node}:{task}" for node, task in way]
    assert get_namespace_depth(namespace) == len(way)
