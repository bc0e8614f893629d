"""LangChain's stock middleware: a script for each, and a tree that follows it over its restarts.

`main(database, log, case, mode, step)` takes one step of a tree whose second agent has the
middleware, in a process of its own. The first thing that its model does is a call of a tool that
asks the user. What each call of the model is shown, and each run of a tool, is a line of the log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.types import interrupt

from echelons import Agent, Result, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last

TASK = "mail ann@example.com about Rome"
ASK = Call("ask", {"what": "When?"})


@dataclass(frozen=True)
class Case:
    """A middleware and the script that shows its effect."""

    build: Callable[[], AgentMiddleware[Any, Any]]
    steps: Sequence[Any]
    failures: int = 0


SEARCH = Call("search", {"place": "Rome"})

CASES: dict[str, Case] = {
    "summarization": Case(
        lambda: SummarizationMiddleware(
            scripted(*["all in short"] * 9), trigger=("messages", 4), keep=("messages", 2)
        ),
        [SEARCH, Call("search", {"place": "Oslo"}), Call("search", {"place": "Bern"}), "done"],
    ),
    "pii": Case(lambda: PIIMiddleware("email", strategy="redact"), ["done"]),
    "pii of an answer": Case(
        lambda: PIIMiddleware("email", strategy="mask", apply_to_output=True),
        ["write to bob@example.com"],
    ),
    "model fallback": Case(
        lambda: ModelFallbackMiddleware(scripted("of the second")), [ConnectionError("down")]
    ),
    "model retry": Case(
        lambda: ModelRetryMiddleware(max_retries=2, initial_delay=0, retry_on=(ConnectionError,)),
        [ConnectionError("down"), ConnectionError("down"), "at last"],
    ),
    "tool retry": Case(
        lambda: ToolRetryMiddleware(max_retries=2, initial_delay=0), [SEARCH, "done"], failures=2
    ),
    "tool retry that gives up": Case(
        lambda: ToolRetryMiddleware(max_retries=1, initial_delay=0), [SEARCH, "done"], failures=5
    ),
    "model call limit": Case(
        lambda: ModelCallLimitMiddleware(run_limit=2, exit_behavior="end"), [SEARCH] * 5
    ),
    "tool call limit": Case(
        lambda: ToolCallLimitMiddleware(run_limit=1, exit_behavior="continue"),
        [SEARCH, Call("search", {"place": "Oslo"}), "done"],
    ),
    "tool call limit that ends": Case(
        lambda: ToolCallLimitMiddleware(tool_name="search", run_limit=1, exit_behavior="end"),
        [SEARCH, Call("search", {"place": "Oslo"}), "done"],
    ),
    "context editing": Case(
        lambda: ContextEditingMiddleware(
            edits=[ClearToolUsesEdit(trigger=1, keep=1, placeholder="[cleared]")]
        ),
        [SEARCH, Call("search", {"place": "Oslo"}), "done"],
    ),
    "todo list": Case(
        TodoListMiddleware,
        [Call("write_todos", {"todos": [{"content": "search", "status": "pending"}]}), "done"],
    ),
    "tool selection": Case(
        lambda: LLMToolSelectorMiddleware(model=Selecting(), max_tools=1), [SEARCH, "done"]
    ),
}


class Selecting(ScriptedModel):
    """A model that selects the tool `search`."""

    def __init__(self) -> None:
        super().__init__(["unused"])

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: {"tools": ["search"]})


def scripted(*steps: Any) -> ScriptedModel:
    left = iter(steps)
    return ScriptedModel(lambda messages: next(left))


def main(database: str, log: str, case: str, mode: str, step: str) -> dict[str, Any]:
    """Take a step, and return the questions and the text that it ended with."""
    action, given = json.loads(step)
    mid = Agent(
        "mid",
        model=build_logged_model(Path(log), case),
        tools=build_logged_tools(Path(log), case),
        subordinates=[Agent("leaf", model=ScriptedModel(["unused"]))],
        middleware=[CASES[case].build()],
    )
    head = ScriptedModel(
        lambda messages: (
            str(get_last(messages).text)
            if get_last(messages).type == "tool"
            else delegate("mid", TASK)
        )
    )
    agent = Agent("head", model=head, subordinates=[mid])
    if mode == "sync":
        with Session(agent, database) as session:
            result: Result = getattr(session, action)(given).result()
    else:
        result = asyncio.run(_take(agent, database, action, given))
    return {"questions": [each.id for each in result.questions], "text": result.text}


async def _take(agent: Agent, database: str, action: str, given: Any) -> Result:
    async with Session(agent, database) as session:
        run = await getattr(session, f"a{action}")(given)
        result: Result = await run.result()
        return result


def build_logged_model(log: Path, case: str) -> ScriptedModel:
    """Return a model that asks first and then follows the case, as far as the log says."""
    steps = [ASK, *CASES[case].steps]

    def reply(messages: Sequence[BaseMessage]) -> Any:
        done = sum(line.startswith("[") for line in read_log(log))
        shown = [(each.type, str(each.text)) for each in messages if each.type != "system"]
        write_log(log, json.dumps(shown))
        return steps[done]

    return ScriptedModel(reply)


def build_logged_tools(log: Path, case: str) -> list[Any]:
    """Return the tools, the first of which asks the user."""

    @tool
    def ask(what: str) -> str:
        """Ask the user."""
        return f"told {interrupt(what)}"

    @tool
    def search(place: str) -> str:
        """Search a place."""
        write_log(log, f"search {place}")
        runs = sum(line.startswith("search") for line in read_log(log))
        if runs <= CASES[case].failures:
            raise ConnectionError("no connection")
        return f"all about {place}"

    @tool
    def weather(place: str) -> str:
        """Tell the weather of a place."""
        return f"sun in {place}"

    return [ask, search, weather]


def write_log(log: Path, line: str) -> None:
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


def read_log(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []
