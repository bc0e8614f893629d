"""A namespace is the way down to a graph, and is taken apart as it was put together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelons.checkpoints.namespaces import below, depth_of, parts_of
from echelons.tree.names import PATTERN

steps = st.lists(st.tuples(st.from_regex(PATTERN, fullmatch=True), st.uuids().map(str)), max_size=6)


@given(steps)
def test_a_namespace_has_a_part_for_every_step_down(way: list[tuple[str, str]]) -> None:
    namespace = ""
    for node, task in way:
        namespace = below(namespace, node, task)

    assert parts_of(namespace) == [f"{node}:{task}" for node, task in way]
    assert depth_of(namespace) == len(way)
