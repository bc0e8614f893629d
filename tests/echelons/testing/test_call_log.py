"""The record of what a model was asked."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from echelons.testing.scripted_model import CallLog

METADATA = {"agent": "food", "agent_path": "head/food", "agent_thread_id": "t1", "user": "u"}


def test_call_record_has_agent_messages_and_tools() -> None:
    record = CallLog().record_start(METADATA, [HumanMessage("hi")], ["search"])
    assert (record.number, record.agent, record.path) == (0, "food", "head/food")
    assert (record.thread_id, record.tools) == ("t1", ("search",))
    assert [message.content for message in record.messages] == ["hi"]
    assert record.metadata["user"] == "u"


def test_a_call_without_metadata_has_no_agent() -> None:
    record = CallLog().record_start({}, [HumanMessage("hi")], [])
    assert (record.agent, record.path, record.thread_id) == (None, None, None)


def test_a_finished_call_that_is_asked_again_counts_as_repeated() -> None:
    log = CallLog()
    log.record_finish(log.record_start(METADATA, [HumanMessage("hi", id="1")], []))
    again = log.record_start(METADATA, [HumanMessage("hi", id="2")], [])
    assert log.find_repeated() == [again]


def test_a_call_that_never_finished_may_be_asked_again() -> None:
    log = CallLog()
    log.record_start(METADATA, [HumanMessage("hi")], [])
    log.record_finish(log.record_start(METADATA, [HumanMessage("hi")], []))
    assert log.find_repeated() == []


def test_the_same_question_in_another_thread_or_by_another_agent_is_no_repetition() -> None:
    log = CallLog()
    for other in (METADATA, METADATA | {"agent_thread_id": "t2"}, METADATA | {"agent": "hotels"}):
        log.record_finish(log.record_start(other, [HumanMessage("hi")], []))
    assert log.find_repeated() == []


def test_the_next_step_of_a_conversation_is_no_repetition() -> None:
    log = CallLog()
    asked = [HumanMessage("hi"), AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "c"}])]
    log.record_finish(log.record_start(METADATA, asked, []))
    log.record_finish(log.record_start(METADATA, [*asked, ToolMessage("r", tool_call_id="c")], []))
    log.record_finish(log.record_start(METADATA, [*asked, ToolMessage("s", tool_call_id="c")], []))
    assert log.find_repeated() == []
