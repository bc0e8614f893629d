"""A prompt is a text, a message, or a function of the state; what fails in it is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, SystemMessage
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from echelons import Agent, Session
from echelons.errors import EventLoopMissing
from echelons.nodes.model_call import SystemPrompt
from echelons.plans import run_plan_steps
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.notice_marks import without_marks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echelons.identity.thread_history import Past

TASK: Any = {"messages": [("user", "plan")]}


def look() -> str:
    """Look around."""
    return "fine"


def told(prompt: Any, guidance: str = "") -> Any:
    message = run_plan_steps(SystemPrompt(prompt, guidance).build(NO_PAST, {"messages": []}, {}))
    return message and getattr(message, "content", message)


NO_PAST: Past = None  # type: ignore[assignment]  # read by functions only


def test_guidance_follows_the_prompt() -> None:
    assert told("Be brief.", "You are head.") == "Be brief.\n\nYou are head."
    assert told("", "You are head.") == "You are head."
    assert told("Be brief.") == "Be brief."
    assert told("") is None


def test_a_message_keeps_what_it_has_beside_its_text() -> None:
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}

    assert told(SystemMessage("Be brief."), "You are head.") == "Be brief.\n\nYou are head."
    assert told(SystemMessage([block]), "You are head.") == [
        block,
        {"type": "text", "text": "You are head."},
    ]
    own = SystemMessage("Be brief.", additional_kwargs={"own": 1})
    built = run_plan_steps(SystemPrompt(own, "You are head.").build(NO_PAST, {}, {}))
    assert isinstance(built, SystemMessage)
    assert (built.additional_kwargs, own.content) == ({"own": 1}, "Be brief.")


@pytest.mark.parametrize("text", ["{city}", "{0} {", "$name ${x} $", "%s %(a)s"])
def test_a_prompt_is_never_formatted(text: str) -> None:
    assert told(text, text) == f"{text}\n\n{text}"


def test_a_lone_surrogate_is_replaced() -> None:
    assert told("a \ud83d b") == "a \N{REPLACEMENT CHARACTER} b"


def test_the_message_of_a_level_is_made_once() -> None:
    system = SystemPrompt("Be brief.", "You are head.")

    first, second = (run_plan_steps(system.build(NO_PAST, {}, {})) for _ in range(2))
    assert first is second


# Functions, at the second level


class WithCall:
    def __call__(self, state: Mapping[str, Any]) -> str:
        return f"{len(state['messages'])} messages"


async def count_async(state: Mapping[str, Any]) -> str:
    await asyncio.sleep(0)
    return f"{len(state['messages'])} messages"


def count_for(state: Mapping[str, Any], runtime: Runtime[Any]) -> SystemMessage:
    return SystemMessage(f"{len(state['messages'])} messages for {runtime.context}")


def count_keyword(state: Mapping[str, Any], *, runtime: Runtime[Any]) -> str:
    return f"{len(state['messages'])} messages for {runtime.context}"


def count_with_default(state: Mapping[str, Any], unit: str = "messages") -> str:
    return f"{len(state['messages'])} {unit}"


def team(prompt: Any, **more: Any) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose second has a prompt, and their model."""
    model = ScriptedModel(
        {
            "head": [delegate("days", "one day"), "planned"],
            "days": [delegate("eat", "dinner"), "day done"],
            "eat": ["pizza"],
        }
    )
    days = Agent("days", prompt=prompt, subordinates=[Agent("eat")], **more)
    return Agent("head", model=model, guidance="", subordinates=[days]), model


def run(agent: Agent, in_loop: bool, **more: Any) -> Any:
    with Session(agent, ":memory:", **more) as session:
        if not in_loop:
            return session.send("plan").result()
        return asyncio.run(arun(session))


async def arun(session: Session) -> Any:
    return await (await session.asend("plan")).result()


def shown(model: ScriptedModel, agent: str) -> list[list[str]]:
    """Return the system messages of each call of an agent."""
    return [
        [str(each.text) for each in call.messages if each.type == "system"]
        for call in model.calls
        if call.agent == agent
    ]


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (lambda state: f"{len(state['messages'])} messages", "{} messages"),
        (WithCall(), "{} messages"),
        (count_async, "{} messages"),
        (count_for, "{} messages for ann"),
        (count_keyword, "{} messages for ann"),
        (count_with_default, "{} messages"),
        (partial(count_with_default, unit="parts"), "{} parts"),
    ],
)
def test_a_function_is_asked_before_each_call_of_its_agents_model(
    prompt: Callable[..., Any], said: str, in_loop: bool
) -> None:
    agent, model = team(prompt)

    run(agent, in_loop, context="ann")

    assert shown(model, "days") == [[said.format(1)], [said.format(3)]]
    assert shown(model, "head") == [[], []]
    assert shown(model, "eat") == [[]]


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_function_sees_the_whole_thread_but_not_what_the_library_keeps(in_loop: bool) -> None:
    seen = list[Any]()
    model = ScriptedModel({"head": [delegate("days", "one day"), "planned"], "days": ["done"]})

    def prompt(state: Mapping[str, Any]) -> str:
        seen.append(state)
        return "Be brief."

    days = Agent("days", prompt=prompt)
    with Session(Agent("head", model=model, subordinates=[days]), ":memory:") as session:
        for _ in range(2):
            if in_loop:
                asyncio.run(arun(session))
            else:
                session.send("plan").result()

    texts = [[str(each.text) for each in state["messages"]] for state in seen]
    assert texts == [["one day"], ["one day", "done", "one day"]]
    assert [set(state) for state in seen] == [{"messages"}] * 2


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize("end", [ConnectionError("no line"), 5, None, ["a"], AIMessage("x"), str])
def test_a_function_that_fails_is_a_failure_of_its_agent(end: Any, in_loop: bool) -> None:
    def fail(state: Mapping[str, Any]) -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    agent, model = team(fail)

    result = run(agent, in_loop)

    assert result.text == "planned"
    [answer] = [each for each in model.calls[-1].messages if each.type == "tool"]
    why = "ConnectionError: no line" if isinstance(end, Exception) else "it returned a value of"
    assert f"PromptFailed: the prompt of 'head/days' failed: {why}" in answer.text


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_turn_whose_roots_prompt_failed_can_be_resumed(in_loop: bool, tmp_path: Path) -> None:
    ends = [ConnectionError("no line at sk-abcdefghijklmnopqrstuvwx"), None]

    def prompt(state: Mapping[str, Any]) -> str:
        if error := ends.pop(0):
            raise error
        return "Be brief."

    model = ScriptedModel(["done"])
    agent = Agent("head", model=model, prompt=prompt)
    with Session(agent, tmp_path / "a.sqlite") as session:
        with raises_code(
            "prompt_failed", match="'head' failed: ConnectionError: no line"
        ) as failed:
            run_on(session, in_loop)
        assert "sk-abcdef" not in str(failed.value)
        assert failed.value.agent == "head"
        assert session.resume().result().text == "done"
    [[told]] = shown(model, "head")
    assert told == "Be brief.\n\nYou are head."


def run_on(session: Session, in_loop: bool) -> Any:
    return asyncio.run(arun(session)) if in_loop else session.send("plan").result()


def test_a_function_may_ask_a_human() -> None:
    agent, model = team(lambda _: f"Speak {interrupt('Which language?')}.")

    with Session(agent, ":memory:") as session:
        [question] = session.send("plan").result().questions
        assert session.answer(question.id, "French").result().questions
    assert shown(model, "days") == [["Speak French."]]


def test_an_async_function_needs_an_event_loop() -> None:
    agent, model = team(count_async)

    with pytest.raises(EventLoopMissing, match="the prompt of head/days"):
        agent.compile().invoke(TASK)
    assert not model.calls
    asyncio.run(agent.compile().ainvoke(TASK))
    assert shown(model, "days") == [["1 messages"], ["3 messages"]]


@pytest.mark.parametrize(
    "prompt", [5, None, ["Be brief."], AIMessage("x"), str, lambda: "x", lambda a, b, c: "x"]
)
def test_what_is_no_prompt_is_refused_when_the_agent_is_made(prompt: Any) -> None:
    with raises_code("invalid_field", match=r"agent 'head': prompt=.*SystemMessage, or function"):
        Agent("head", prompt=prompt)


# Guidance


def test_guidance_of_ones_own_takes_the_place_of_the_librarys_and_is_inherited() -> None:
    agent, model = team("Be brief.", guidance="We are {three}.")

    run(agent, in_loop=False)

    assert shown(model, "head") == [[], []]
    assert shown(model, "days")[0] == ["Be brief.\n\nWe are {three}.\n\nYour subordinates:\n- eat"]
    assert shown(model, "eat") == [["We are {three}."]]


def test_every_agent_reads_its_identity_and_what_its_superior_wants() -> None:
    model = ScriptedModel(
        {"head": [delegate("eat", "dinner"), "planned"], "eat": [Call("look"), "pizza"]}
    )
    eat = Agent("eat", "Finds food", prompt="Be brief.", tools=[look])

    run(Agent("head", model=model, subordinates=[eat]), in_loop=False)

    [[head], _] = without_marks(shown(model, "head"))
    [[leaf], _] = without_marks(shown(model, "eat"))
    assert head.startswith("You are head, an agent in a team.\n\nYour superior gives")
    assert "Your subordinates:\n- eat" in head
    assert '\nYour purpose: "Finds food"' in leaf
    assert "call ask" in leaf
    assert leaf.startswith("Be brief.\n\nYou are eat, an agent in a team.")


@pytest.mark.parametrize("guidance", [5, ["x"], str])
def test_what_is_no_guidance_is_refused(guidance: Any) -> None:
    with raises_code("invalid_field", match="guidance"):
        Agent("head", guidance=guidance)
