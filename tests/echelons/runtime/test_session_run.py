"""A run does nothing until somebody drives it, and can be left at any point without loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.types import interrupt

from echelons import Agent, Session, Usage
from echelons.runtime.run_events import RunEventKind
from echelons.testing import Call, Reply, ScriptedModel, delegate

ENDING = ["head", "eat", "head"]


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def team(*last: Any) -> tuple[Agent, ScriptedModel]:
    """Return a tree of two levels, and its model."""
    model = ScriptedModel(
        {
            "head": [Reply("One moment.", [delegate("eat", "dinner")], usage=(1, 2)), "planned"],
            "eat": [*(last or [Reply("pizza", usage=(10, 20))])],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])]), model


@pytest.fixture
def model() -> ScriptedModel:
    return team()[1]


@pytest.fixture
def session(model: ScriptedModel) -> Iterator[Session]:
    """A session whose tree answers without questions."""
    head = Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])])
    with Session(head, ":memory:") as opened:
        yield opened


def callers(model: ScriptedModel) -> list[str | None]:
    return [call.agent for call in model.calls]


def test_nothing_happens_before_a_run_is_driven(session: Session, model: ScriptedModel) -> None:
    with session.send("plan"):
        assert callers(model) == []
        assert session.graph.get_state(session.config).values == {}


def test_a_run_that_is_never_driven_warns_when_it_is_collected(session: Session) -> None:
    with pytest.warns(RuntimeWarning, match="thread 'main' was never started.*nothing was sent"):
        session.send("plan")


def test_the_result_is_the_answer_and_what_it_cost(session: Session) -> None:
    result = session.send("plan").result()

    assert (result.text, str(result), result.questions) == ("planned", "planned", ())
    assert result.finished
    assert result.usage == Usage(input_tokens=11, output_tokens=22, model_calls=3, unknown_calls=1)


def test_the_usage_is_that_of_one_run(session: Session) -> None:
    first, second = session.send("plan").result(), session.send("plan").result()

    assert first.usage == second.usage


def test_a_result_can_be_asked_for_again(session: Session, model: ScriptedModel) -> None:
    run = session.send("plan")

    assert run.result() == run.result()
    assert callers(model) == ENDING


def test_there_are_no_events_after_the_result(session: Session) -> None:
    run = session.send("plan")
    run.result()

    assert list(run) == []


def test_the_result_after_all_events_is_the_same(session: Session) -> None:
    run = session.send("plan")
    events = list(run)

    assert events[-1].content == run.result().text == "planned"


def test_the_result_in_the_middle_drives_the_rest(session: Session, model: ScriptedModel) -> None:
    run = session.send("plan")
    next(iter(run))

    assert run.result().text == "planned"
    assert callers(model) == ENDING


# Leaving early


def left(session: Session, how: str) -> None:
    """Leave a run after its first event."""
    run = session.send("plan")
    if how == "closed":
        next(iter(run))
        run.close()
    elif how == "with":
        with run:
            next(iter(run))
    elif how == "broken off":
        for _ in run:
            break
    else:
        with pytest.raises(KeyboardInterrupt), run:
            for _ in run:
                raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["closed", "with", "broken off", "interrupted"])
def test_a_run_that_is_left_early_goes_on_later(
    session: Session, model: ScriptedModel, how: str
) -> None:
    left(session, how)

    resumed = session.resume().result()

    assert (resumed.text, resumed.finished) == ("planned", True)
    assert model.repeated_calls == []
    assert len(session.graph.get_state(session.config).values["messages"]) == 4


def test_a_closed_run_has_ended_and_says_that_the_turn_has_not(
    session: Session, model: ScriptedModel
) -> None:
    run = session.send("plan")
    next(iter(run))

    run.close()

    assert list(run) == []
    result = run.result()
    assert (result.text, result.finished, result.questions) == ("", False, ())
    assert callers(model) == []
    run.close()


def test_a_run_that_is_closed_before_it_began_never_begins(
    session: Session, model: ScriptedModel
) -> None:
    run = session.send("plan")

    run.close()

    assert list(run) == []
    assert session.graph.get_state(session.config).values == {}
    assert callers(model) == []
    assert session.send("plan").result().text == "planned"


def test_leaving_a_with_after_the_end_changes_nothing(session: Session) -> None:
    with session.send("plan") as run:
        result = run.result()

    assert result.finished
    assert session.send("again").result().finished


def test_an_error_inside_a_with_is_the_one_that_is_raised(session: Session) -> None:
    with pytest.raises(LookupError, match="own"), session.send("plan"):
        raise LookupError("own")

    assert session.send("plan").result().finished


def test_paused_run_streams_to_the_end_of_its_step(session: Session, model: ScriptedModel) -> None:
    run = session.send("plan")
    events = []
    for event in run:
        events.append(event.kind)
        run.pause()

    assert events[-1] is RunEventKind.DELEGATION
    assert not run.result().finished
    assert session.resume().result().text == "planned"
    assert model.repeated_calls == []


def test_leaving_a_with_stops_the_run_there_and_then(
    session: Session, model: ScriptedModel
) -> None:
    with session.send("plan") as run:
        next(iter(run))

    assert list(run) == []
    assert callers(model) == []


# Questions and errors


def test_a_run_that_stops_at_a_question_has_it_in_its_result() -> None:
    head, _ = team(Call("ask", {"question": "Sure?"}), "thanks")
    with Session(head, ":memory:") as session:
        result = session.send("plan").result()

        assert (result.text, result.finished) == ("", False)
        assert [each.value for each in result.questions] == ["Sure?"]
        assert list(result.questions) == session.inbox()


def test_an_error_of_the_roots_model_is_raised_once_and_the_turn_can_go_on() -> None:
    attempts: list[int] = []

    def flaky(_: Any) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("no line")
        return "planned"

    with Session(Agent("head", model=ScriptedModel(flaky)), ":memory:") as session:
        run = session.send("plan")
        seen = []
        with pytest.raises(ConnectionError, match="no line"):
            for event in run:
                seen.append((event.kind, event.content))

        assert seen == [(RunEventKind.TASK, "plan"), (RunEventKind.ERROR, "no line")]
        assert not run.result().finished
        assert session.resume().result().text == "planned"


# In an event loop


async def test_an_async_run_is_driven_like_any_other() -> None:
    head, model = team()
    async with Session(head, ":memory:") as session:
        run = await session.asend("plan")
        assert callers(model) == []
        events = [each async for each in run]

        result = await run.result()
        assert (result.text, result.finished) == ("planned", True)
        assert result == await run.result()
        assert result.usage == Usage(
            input_tokens=11, output_tokens=22, model_calls=3, unknown_calls=1
        )
        assert events[-1].content == "planned"
        assert callers(model) == ENDING


@pytest.mark.parametrize("how", ["closed", "with", "paused"])
async def test_an_async_run_that_is_left_early_goes_on_later(how: str) -> None:
    head, model = team()
    async with Session(head, ":memory:") as session:
        run = await session.asend("plan")
        if how == "with":
            async with run:
                await anext(aiter(run))
        elif how == "closed":
            await anext(aiter(run))
            await run.close()
        else:
            async for _ in run:
                run.pause()

        assert not (await run.result()).finished
        resumed = await (await session.aresume()).result()
        assert resumed.text == "planned"
        assert model.repeated_calls == []


async def test_an_async_run_that_is_closed_before_it_began_never_begins() -> None:
    head, model = team()
    async with Session(head, ":memory:") as session:
        run = await session.asend("plan")
        await run.close()

        assert [each async for each in run] == []
        assert callers(model) == []
        assert (await (await session.asend("plan")).result()).text == "planned"
