"""Many calls of one subordinate in one message: whose history is it, and is any lost?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.testing import Script, ScriptedModel, delegate
from tests.failure_ids import without_conversation_ids, without_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

MANY = 20
GO = {"messages": [("user", "go")]}


def recalled(messages: Sequence[BaseMessage]) -> str:
    """Answer with every task that is remembered."""
    return " + ".join(str(each.text) for each in messages if isinstance(each, HumanMessage))


def tool_answers(messages: Sequence[BaseMessage]) -> list[str]:
    """Return what the calls in a conversation were answered, in order, without ids."""
    texts = [str(each.text) for each in messages if isinstance(each, ToolMessage)]
    return [*map(without_conversation_ids, texts)]


def answers(session: Session) -> list[str]:
    """Return what the root's calls were answered."""
    return tool_answers(session.thread_store.get(session.thread_id).messages)


def twenty(guide: Script) -> Agent:
    """Return a tree whose root calls one subordinate twenty times at once."""
    calls = [delegate("guide", f"task {number}", reset=True) for number in range(MANY)]
    model = ScriptedModel({"head": [calls, "done"], "guide": guide})
    return Agent("head", model=model, subordinates=[Agent("guide")])


def test_twenty_calls_with_reset_have_twenty_threads_of_their_own(world: World) -> None:
    head = twenty(recalled)

    with Session(head, ":memory:") as session:
        result = world.send(session, "go")

        links = session.thread_store.verify(session.thread_id)
        threads = [session.thread_store.get(link.sub_agent_thread_id) for link in links]

    assert result.text == "done"
    assert len({thread.id for thread in threads}) == MANY
    assert [[each.text for each in thread.messages] for thread in threads] == [
        [f"task {number}", f"task {number}"] for number in range(MANY)
    ]
    assert isinstance(head.model, ScriptedModel)
    assert head.model.repeated_calls == []


def test_twenty_calls_with_reset_run_side_by_side(saver: SqliteCheckpointer) -> None:
    meeting = threading.Barrier(MANY, timeout=120)

    def meet(messages: Sequence[BaseMessage]) -> str:
        meeting.wait()
        return recalled(messages)

    graph = twenty(meet).compile(saver)

    out = graph.invoke(GO, {"configurable": {"thread_id": "t"}, "max_concurrency": MANY})

    assert tool_answers(out["messages"]) == [f"task {number}" for number in range(MANY)]


async def test_twenty_calls_with_reset_run_side_by_side_in_an_event_loop(
    saver: SqliteCheckpointer,
) -> None:
    meeting = asyncio.Barrier(MANY)

    async def meet(messages: Sequence[BaseMessage]) -> str:
        async with asyncio.timeout(120):
            await meeting.wait()
        return recalled(messages)

    graph = twenty(meet).compile(saver)

    out = await graph.ainvoke(GO, {"configurable": {"thread_id": "t"}})

    assert tool_answers(out["messages"]) == [f"task {number}" for number in range(MANY)]


def test_first_task_of_a_message_goes_on_and_each_other_is_aside(world: World) -> None:
    calls = [
        delegate("guide", "one"),
        delegate("scout", "aside"),
        delegate("guide", "two"),
        delegate("guide", "anew", reset=True),
        delegate("guide", "three"),
    ]
    later = [delegate("guide", "four"), delegate("scout", "more")]
    scripts: dict[str, Any] = {"head": [calls, later, "done"], "guide": recalled, "scout": recalled}
    head = Agent(
        "head", model=ScriptedModel(scripts), subordinates=[Agent("guide"), Agent("scout")]
    )

    with Session(head, ":memory:") as session:
        world.send(session, "go")
        found = answers(session)
        links = session.thread_store.verify(session.thread_id)
        segments = [session.thread_store.get(link.sub_agent_thread_id).segments for link in links]

    assert found == [
        "one",
        "aside",
        "two",
        "anew",
        "three",
        "anew + four",
        "aside + more",
    ]
    assert segments == [1, 2, 1, 2, 1]


def test_a_failing_side_conversation_takes_nothing_from_the_others(world: World) -> None:
    def sometimes(messages: Sequence[BaseMessage]) -> str | BaseException:
        said = recalled(messages)
        return ValueError("not that") if said.endswith("break") else said

    calls = [delegate("guide", task) for task in ("one", "break", "three")]
    model = ScriptedModel({"head": [calls, "done"], "guide": sometimes})
    head = Agent("head", model=model, subordinates=[Agent("guide")])

    with Session(head, ":memory:") as session:
        world.send(session, "go")
        found = answers(session)

    first, failed, third = found
    assert without_ids(failed) == "[unable] ValueError: not that"
    assert (first, third) == ("one", "three")


def test_what_a_subordinate_answers_stands_under_its_own_call(world: World) -> None:
    calls = [
        delegate("guide", f"task {number}", reset=True, id=f"call-{number}") for number in range(5)
    ]
    model = ScriptedModel({"head": [calls, "done"], "guide": recalled})
    graph = Agent("head", model=model, subordinates=[Agent("guide")]).compile()

    messages = world.invoke(graph, GO)["messages"]

    ids = [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]
    assert dict(zip(ids, tool_answers(messages), strict=True)) == {
        f"call-{number}": f"task {number}" for number in range(5)
    }
    assert isinstance(messages[-1], AIMessage)
