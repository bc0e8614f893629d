"""Trees whose lowest agents each ask a human, with a record of what their tools did.

The interrupt matrix builds them of a depth and a width, and so does the other process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last, without_told

TEXT = {"type": "string"}


class Askers:
    """So many branches of a depth, at the end of each an agent that asks.

    An odd number of branches begins at the root, an even number at the last superior; with
    depth 1 the root itself asks them all. The answer of every agent is what those below it
    said, so the root's is made of all answers.

    Args:
        depth: Levels, the root's included.
        width: Branches; each asks one question, ``q1`` and so on.
        work: What one more branch does, which asks nothing.
    """

    def __init__(self, depth: int, width: int, work: Callable[[], None] | None = None) -> None:
        self.begun: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._lock = Lock()
        self._work = work
        self._depth = depth
        self._fork = max(1, depth - 1) if width % 2 == 0 else 1
        self.questions = [f"q{place}" for place in range(1, width + 1)]
        scripts: dict[str, Any] = {}
        calls, below = self._below(scripts)
        if work:
            below.append(Agent("worker", tools=[self.work]))
            scripts["worker"] = _first_then(Call("work"))
            calls.append(delegate("worker", "work"))
        scripts["head"] = _first_then(calls)
        self.model = ScriptedModel(scripts)
        tools = [self.ask] if depth == 1 else []
        self.agent = Agent("head", model=self.model, tools=tools, subordinates=below)

    def path(self, question: str) -> tuple[str, ...]:
        """Return the path of the agent that asks a question."""
        own = (f"{question}-{level}" for level in range(self._fork + 1, self._depth + 1))
        return ("head", *self._shared, *own)

    def said(self, answers: Mapping[str, str]) -> set[str]:
        """Return what the root must have heard of the branches that asked."""
        return {f"{question} heard {answers[question]}" for question in self.questions}

    @property
    def _shared(self) -> list[str]:
        return [f"all-{level}" for level in range(2, self._fork + 1)]

    def _below(self, scripts: dict[str, Any]) -> tuple[list[Call], list[Agent]]:
        """Return what the root calls, and whom it has below it."""
        if self._depth == 1:
            return [Call("ask", {"question": each}) for each in self.questions], []
        below = [self._branch(each, scripts) for each in self.questions]
        for name in reversed(self._shared):
            scripts[name] = _first_then([delegate(each.name, "ask") for each in below])
            below = [Agent(name, subordinates=below)]
        return [delegate(each.name, "ask") for each in below], below

    def _branch(self, question: str, scripts: dict[str, Any]) -> Agent:
        names = self.path(question)[self._fork :]
        scripts[names[-1]] = _first_then(Call("ask", {"question": question}))
        agent = Agent(names[-1], tools=[self.ask])
        for name, lower in reversed(list(pairwise(names))):
            scripts[name] = _first_then(delegate(lower, "ask"))
            agent = Agent(name, subordinates=[agent])
        return agent

    def ask(self, question: str) -> str:
        """Ask a human.

        Args:
            question: What to ask.
        """
        with self._lock:
            self.begun[question] += 1
        answer = interrupt(question, response_schema=TEXT)
        with self._lock:
            self.answered[question] += 1
        return f"{question} heard {answer}"

    def work(self) -> str:
        """Work until it is done."""
        if self._work:
            self._work()
        return "worked"


def heard(session: Session) -> dict[str, list[str]]:
    """Return what each question was answered with, as the asking agents' threads tell it.

    Every message of a tool is compared with the call that it answers.
    """
    found: dict[str, list[str]] = {}
    for thread in session.trace().walk():
        messages = session.thread_store.get(thread.thread_id).messages
        asked = {
            str(call["id"]): str(call["args"]["question"])
            for each in messages
            if isinstance(each, AIMessage)
            for call in each.tool_calls
            if call["name"] == "ask"
        }
        for each in messages:
            if isinstance(each, ToolMessage) and each.tool_call_id in asked:
                question, _, answer = str(each.text).partition(" heard ")
                assert question == asked[each.tool_call_id]
                assert thread.agent in ("head", *_below(question, thread.agent))
                found.setdefault(question, []).append(answer)
    return found


def _below(question: str, agent: str) -> Iterable[str]:
    return (agent,) if agent.startswith(f"{question}-") else ()


def _first_then(step: Any) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return the script of an agent that makes a step, and then says what came of it."""

    def script(messages: Sequence[BaseMessage]) -> Any:
        return step if isinstance(get_last(messages), HumanMessage) else _said(messages)

    return script


def _said(messages: Sequence[BaseMessage]) -> str:
    results: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        # Without what it is told of the questions of others.
        results.insert(0, without_told(message.text))
    return " | ".join(results)
