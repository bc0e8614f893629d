"""Of a run's metadata is stored what LangGraph stores, without what a caller has configured."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import get_checkpoint_metadata

from echelons.checkpoints.storage.event_rows import filter_metadata

NAMES = ("agent", "thread_id", "source", "langgraph_node", "__pregel_x", "step", "run_id")
texts = st.text("a\x00", max_size=3)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
held: Any = st.dictionaries(
    st.sampled_from(NAMES), values | st.dictionaries(texts, texts, max_size=2)
)


@given(held, held)
def test_it_is_what_langgraph_would_store(around: dict[str, Any], own: Any) -> None:
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": around}

    assert filter_metadata(config, own) == get_checkpoint_metadata({"metadata": around}, own)


def test_what_a_caller_has_configured_is_left_out() -> None:
    config: Any = {
        "configurable": {"thread_id": "t", "key": "secret", "model": "dear"},
        "metadata": {"model": "dear", "agent": "head"},
    }
    merged: Any = {"source": "loop", "key": "secret"}

    assert filter_metadata(config, merged) == {"source": "loop", "agent": "head"}
