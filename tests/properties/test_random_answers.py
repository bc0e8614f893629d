"""Whoever asks in whatever tree, and in whatever order answers come: none is ever crossed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Result, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.proof import sample

DEPTH = 4


@dataclass(frozen=True)
class Asker:
    """An agent to be: how many questions it asks at once, message by message, and who is below.

    Whom it has below, it calls in its first message, beside its questions.
    """

    asks: tuple[int, ...]
    below: tuple[Asker, ...]


@st.composite
def askers(draw: st.DrawFn, depth: int = DEPTH) -> Asker:
    asks = tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=2)))
    width = draw(st.integers(1 if depth == DEPTH else 0, 2)) if depth > 1 else 0
    return Asker(asks, tuple(draw(askers(depth - 1)) for _ in range(width)))


def ask(question: str) -> str:
    """Ask a human.

    Args:
        question: What to ask.
    """
    return f"{question} heard {interrupt(question)}"


def agent_of(asker: Asker, scripts: dict[str, Any], name: str = "a") -> Agent:
    below = [agent_of(each, scripts, f"{name}{n}") for n, each in enumerate(asker.below)]
    scripts[name] = script(asker, name)
    model = ScriptedModel(scripts) if name == "a" else None
    return Agent(name, guidance="", model=model, tools=[ask], subordinates=below)


def script(asker: Asker, name: str) -> Callable[[Sequence[BaseMessage]], Any]:
    def step(messages: Sequence[BaseMessage]) -> Any:
        assert isinstance(messages[0], HumanMessage)
        done = sum(isinstance(each, AIMessage) for each in messages)
        asked = asker.asks[done] if done < len(asker.asks) else 0
        calls = [Call("ask", {"question": f"{name} {done} {n}"}) for n in range(asked)]
        if done == 0:
            calls += [delegate(f"{name}{n}", "ask") for n in range(len(asker.below))]
        return calls or "said"

    return step


def asked_by(asker: Asker, name: str = "a") -> Iterator[str]:
    """Yield all that a tree asks in a turn; who asks nothing in a message says its last word."""
    for message, count in enumerate(asker.asks):
        yield from (f"{name} {message} {n}" for n in range(count))
        if not count and not (message == 0 and asker.below):
            break
    for n, each in enumerate(asker.below):
        yield from asked_by(each, f"{name}{n}")


def heard(session: Session) -> list[str]:
    """Return what all tools of a tree came to, and check that each answers its own call."""
    found: list[str] = []
    for thread in session.trace().walk():
        messages = session.thread_store.get(thread.thread_id).messages
        calls = {
            call["id"]: call["args"]["question"]
            for each in messages
            if isinstance(each, AIMessage)
            for call in each.tool_calls
            if call["name"] == "ask"
        }
        for each in messages:
            if isinstance(each, ToolMessage) and each.tool_call_id in calls:
                assert each.text.startswith(f"{calls[each.tool_call_id]} heard ")
                assert each.text.startswith(f"{thread.agent} ")
                found.append(str(each.text))
    return found


def answered(session: Session, answers: Mapping[str, str], in_a_loop: bool) -> Result:
    async def result() -> Result:
        return await (await session.aanswer(answers)).result()

    return asyncio.run(result()) if in_a_loop else session.answer(answers).result()


@settings(derandomize=True, max_examples=sample(6, 200))
@given(asker=askers(), data=st.data())
def test_every_question_gets_its_own_answer(asker: Asker, data: st.DataObject) -> None:
    scripts: dict[str, Any] = {}
    agent = agent_of(asker, scripts)
    expected: list[str] = []
    with TemporaryDirectory() as folder:
        session = Session(agent, Path(folder) / "t.sqlite")
        result = session.send("ask").result()
        while result.questions:
            some = data.draw(st.lists(st.sampled_from(result.questions), min_size=1, unique_by=_id))
            answers = {each.id: f"answer {len(expected) + n}" for n, each in enumerate(some)}
            expected += [f"{each.value} heard {answers[each.id]}" for each in some]
            if data.draw(st.booleans()):
                session.close()
                session = Session(agent, Path(folder) / "t.sqlite")
            result = answered(session, answers, in_a_loop=data.draw(st.booleans()))
            assert {each.id for each in result.questions}.isdisjoint(answers)
        assert result.finished
        assert sorted(heard(session)) == sorted(expected)
        asked = sorted(each.partition(" heard ")[0] for each in expected)
        assert asked == sorted(asked_by(asker))
        session.close()


def _id(question: Any) -> str:
    return str(question.id)
