"""An agent that makes the same call with the same result is told, and then ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons import Agent, Limits, Session, SqliteCheckpointer, effect
from echelons.errors import InvalidSetting
from echelons.testing import Call, ScriptedModel, delegate

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

REASON = "repeated: the same call of 'look' had the same result {} times, as often as max_repeats"


def look(place: str = "here") -> str:
    """Look."""
    return "seen"


def fail() -> str:
    """Fail."""
    raise ValueError("no line")


def repeat(*calls: Any) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a script that makes some calls, one after another, again and again."""

    def script(messages: Sequence[BaseMessage]) -> Any:
        replies = sum(isinstance(each, AIMessage) for each in messages)
        return calls[replies % len(calls)]

    return script


def build_team(script: Any, *tools: Any, **limits: Any) -> Agent:
    """Return a tree of three levels whose leaf follows a script."""
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "over"],
            "mid": [delegate("leaf", "go"), "done"],
            "leaf": script,
        }
    )
    leaf = Agent("leaf", tools=tools or [look])
    mid = Agent("mid", subordinates=[leaf])
    return Agent("head", model=model, subordinates=[mid], limits=Limits(**limits))


def read_calls(head: Agent) -> list[Any]:
    assert isinstance(head.model, ScriptedModel)
    return [call for call in head.model.calls if call.agent == "leaf"]


def read_warnings(head: Agent) -> list[str]:
    last = read_calls(head)[-1].messages
    return [str(each.text) for each in last if "Warning from your limits" in str(each.text)]


def read_answer(session: Session) -> str:
    trace = session.trace().subordinates[0].subordinates[0]
    return trace.requests[0].reason


@pytest.mark.parametrize("limit", [8, 4, 3, 2])
def test_agent_is_warned_at_half_and_ends_at_the_limit(
    world: World, saver: SqliteCheckpointer, limit: int
) -> None:
    head = build_team(repeat(Call("look")), max_repeats=limit)
    with Session(head, saver) as session:
        assert world.send(session, "go").text == "over"
        reason = read_answer(session)

    assert len(read_calls(head)) == limit
    assert reason.startswith(REASON.format(limit))
    told = [n for n, call in enumerate(read_calls(head)) if "your limits" in str(call.messages)]
    assert told[:1] == ([limit // 2] if limit > 3 else [2] if limit == 3 else [])
    assert len(read_warnings(head)) == bool(told)


def test_root_ends_with_what_it_has(world: World, saver: SqliteCheckpointer) -> None:
    head = Agent("head", model=ScriptedModel(repeat(Call("look"))), tools=[look])
    with Session(head, saver) as session:
        result = world.send(session, "go")

    assert result.status == "limited"
    assert result.reason.startswith(REASON.format(8))
    assert isinstance(head.model, ScriptedModel)
    assert len(head.model.calls) == 8


def test_calls_that_are_not_in_a_row_count(world: World, saver: SqliteCheckpointer) -> None:
    places = itertools.cycle("abc")
    steps = [Call("look"), *(Call("look", {"place": next(places)}) for _ in range(2))]
    head = build_team(repeat(*steps))
    with Session(head, saver) as session:
        world.send(session, "go")
        reason = read_answer(session)

    assert reason.startswith(REASON.format(8))
    # The third of three kinds of calls was made one time less.
    assert len(read_calls(head)) == 3 * 7 + 1


def test_parallel_calls_of_one_reply_count(world: World, saver: SqliteCheckpointer) -> None:
    head = build_team(repeat([Call("look"), Call("look"), Call("look")]))
    with Session(head, saver) as session:
        world.send(session, "go")
        reason = read_answer(session)

    assert reason.startswith(REASON.format(9))
    assert len(read_calls(head)) == 3
    assert len(read_warnings(head)) == 1


def test_other_arguments_or_other_results_are_other_calls(
    world: World, saver: SqliteCheckpointer
) -> None:
    counter = itertools.count()

    def count() -> str:
        """Count."""
        return str(next(counter))

    def script(messages: Sequence[BaseMessage]) -> Any:
        replies = sum(isinstance(each, AIMessage) for each in messages)
        if replies == 40:
            return "done"
        return Call("count") if replies % 2 else Call("look", {"place": str(replies)})

    head = build_team(script, look, count)
    with Session(head, saver) as session:
        world.send(session, "go")
        reason = read_answer(session)

    assert reason == ""
    assert read_warnings(head) == []


def test_tool_that_fails_again_and_again_is_repeated(
    world: World, saver: SqliteCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    head = build_team(repeat(Call("fail")), fail)
    with Session(head, saver) as session:
        world.send(session, "go")
        reason = read_answer(session)

    assert reason.startswith("repeated: the same call of 'fail'")
    assert len(read_calls(head)) == 8


@pytest.mark.parametrize("limits", [{}, {"max_repeats": None}], ids=["polls", "no limit"])
def test_polling_tools_and_no_limit_are_not_counted(
    world: World, saver: SqliteCheckpointer, limits: dict[str, Any]
) -> None:
    def poll() -> str:
        """Poll."""
        return "not yet"

    def script(messages: Sequence[BaseMessage]) -> Any:
        replies = sum(isinstance(each, AIMessage) for each in messages)
        return "done" if replies == 20 else Call("poll")

    marked = poll if limits else effect(polls=True, reads_only=True)(poll)
    head = build_team(script, marked, **limits)
    with Session(head, saver) as session:
        world.send(session, "go")
        reason = read_answer(session)

    assert reason == ""
    assert len(read_calls(head)) == 21


def test_each_request_is_counted_by_itself(world: World, saver: SqliteCheckpointer) -> None:
    def script(messages: Sequence[BaseMessage]) -> Any:
        task = max(n for n, each in enumerate(messages) if each.type == "human" and n >= 0)
        results = sum(isinstance(each, ToolMessage) for each in messages[task:])
        return "done" if results == 3 else Call("look")

    model = ScriptedModel({"head": script})
    with Session(Agent("head", model=model, tools=[look]), saver) as session:
        texts = [world.send(session, "go").text for _ in range(4)]

    assert texts == ["done"] * 4


def test_count_goes_on_after_a_resume_in_another_session(tmp_path: Path) -> None:
    breaks = iter([4])

    def script(messages: Sequence[BaseMessage]) -> Any:
        results = sum(isinstance(each, ToolMessage) for each in messages)
        if results == 4 and next(breaks, None):
            return ConnectionError("no line")
        return Call("look")

    head = Agent("head", model=ScriptedModel(script), tools=[look])
    path = tmp_path / "t.sqlite"
    with Session(head, path, thread="t") as session, pytest.raises(ConnectionError):
        session.send("go").result()
    with Session(head, path, thread="t") as session:
        result = session.resume().result()
        messages = session.thread_store.get(session.thread_id).messages

    assert result.reason.startswith(REASON.format(8))
    assert sum(isinstance(each, ToolMessage) for each in messages) == 8
    assert sum("Warning from your limits" in str(each.text) for each in messages) == 1


def test_limit_of_one_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="max_repeats"):
        Limits(max_repeats=1)


class Nagging(AgentMiddleware[Any]):
    """Adds a message before each call of the model."""

    def __init__(self, build: Callable[[], BaseMessage]) -> None:
        self.build = build

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Add one."""
        return {"messages": [self.build()]}


@pytest.mark.parametrize("build", [lambda: HumanMessage("Go on."), lambda: AIMessage("Hm.")])
def test_messages_that_middleware_adds_begin_no_other_request(
    world: World, build: Callable[[], BaseMessage]
) -> None:
    model = ScriptedModel(lambda _: Call("look"))
    agent = Agent("head", model=model, tools=[look], middleware=[Nagging(build)])
    with Session(agent, ":memory:") as session:
        assert "max_repeats" in world.send(session, "go").text
    assert len(model.calls) == 8
