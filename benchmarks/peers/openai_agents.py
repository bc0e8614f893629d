"""The OpenAI Agents SDK: agents as tools, ``SQLiteSession`` for the root or for each agent.

Tracing is off, for it sends over the network.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunContextWrapper,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic import BaseModel

from benchmarks.peers import work
from benchmarks.peers.work import (
    ANSWER,
    BRIEF,
    CHAIN,
    CROWD,
    REPORT,
    SAID,
    SUBJECT,
    TASK,
    THREAD,
    TYPED,
    Size,
    Work,
    Works,
)
from benchmarks.tally import TALLY

PACKAGES = ("openai-agents", "openai")
EACH = "a session for each agent"
NUMBERS = count()
look_up = function_tool(work.look_up)
Wanted = Sequence[tuple[str, dict[str, Any]]]


class QuickModel(Model):
    """Makes its calls when it is given a task, and answers when they are answered."""

    def __init__(self, wanted: Wanted = (), answer: str = ANSWER, latency: float = 0.0) -> None:
        self._wanted, self._answer, self._latency = wanted, answer, latency

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        TALLY.turns += 1
        if self._latency:
            await asyncio.sleep(self._latency)
        answered = not isinstance(input, str) and input[-1].get("type") == "function_call_output"
        said = [_message(self._answer)] if answered or not self._wanted else self._calls()
        return ModelResponse(output=said, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _calls(self) -> list[Any]:
        return [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{next(NUMBERS)}",
                name=name,
                arguments=json.dumps(arguments),
            )
            for name, arguments in self._wanted
        ]


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=f"msg_{next(NUMBERS)}",
        type="message",
        role="assistant",
        status="completed",
        content=[content],
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The context of a run: where its agents keep their sessions, and under which name."""

    database: Path
    thread: str


@asynccontextmanager
async def opened(folder: Path, setting: str, size: Size) -> AsyncIterator[Works]:
    """Build the trees."""
    set_tracing_disabled(True)
    below = _own_session if setting == EACH else _as_tool
    leaf = _agent("leaf", QuickModel([("look_up", {"subject": SUBJECT})]), [look_up])
    middle = _agent("middle", QuickModel([_to("leaf")]), [below(leaf)])
    chain = _agent("root", QuickModel([_to("middle")]), [below(middle)])
    names = [f"member{number}" for number in range(size.crowd)]
    members = [_agent(name, QuickModel(latency=size.latency)) for name in names]
    model = QuickModel([_to(name) for name in names], latency=size.latency)
    crowd = _agent("root", model, [below(each) for each in members])
    typed = {} if setting == EACH else {TYPED: _work(_build_typed_chain(), folder, TYPED)}
    yield {
        **typed,
        CHAIN: _work(chain, folder, CHAIN),
        CROWD: _work(crowd, folder, CROWD),
        THREAD: _grow(_agent("root", QuickModel(answer=SAID)), folder),
    }


def _agent(name: str, model: QuickModel, tools: Sequence[Any] = ()) -> Any:
    return Agent(name=name, instructions=f"You are {name}.", model=model, tools=list(tools))


class Brief(BaseModel):
    """What each level is given."""

    subject: str
    nights: int


class Report(BaseModel):
    """What each level answers."""

    text: str
    price: float


def _build_typed_chain() -> Any:
    """Return three levels, each run by a tool of its superior with typed arguments."""
    answer, given = json.dumps(REPORT), {"brief": BRIEF}

    def agent(name: str, wanted: Wanted = (), tools: Sequence[Any] = ()) -> Any:
        return Agent(
            name=name,
            instructions=f"You are {name}.",
            model=QuickModel(wanted, answer),
            tools=list(tools),
            output_type=Report,
        )

    middle = agent("middle", [("call_leaf", given)], [_build_typed_tool("leaf", agent("leaf"))])
    return agent("root", [("call_middle", given)], [_build_typed_tool("middle", middle)])


def _build_typed_tool(name: str, below: Any) -> Any:
    async def call(brief: Brief) -> str:
        """Give a brief to a subordinate and get its report."""
        done = await Runner.run(below, brief.model_dump_json())
        report: Report = done.final_output
        return report.model_dump_json()

    call.__annotations__["brief"] = Brief
    return function_tool(call, name_override=f"call_{name}")


def _to(subordinate: str) -> tuple[str, dict[str, Any]]:
    return f"call_{subordinate}", {"input": "Do your part"}


def _as_tool(agent: Any) -> Any:
    return agent.as_tool(tool_name=f"call_{agent.name}", tool_description=f"Ask {agent.name}")


def _own_session(agent: Any) -> Any:
    """Do what ``as_tool`` does, with a session of the run's thread: its own is fixed."""

    async def called(context: RunContextWrapper[Kept], input: str) -> str:
        kept = context.context
        with closing(SQLiteSession(f"{kept.thread}/{agent.name}", kept.database)) as session:
            done = await Runner.run(agent, input, context=kept, session=session)
        return str(done.final_output)

    called.__annotations__["context"] = RunContextWrapper[Kept]
    described = f"Ask {agent.name}"
    return function_tool(called, name_override=f"call_{agent.name}", description_override=described)


def _work(agent: Any, folder: Path, name: str) -> Work:
    async def done(number: int) -> str:
        return await _run(agent, TASK, Kept(work.database(folder, name), f"thread{number}"))

    return done


def _grow(agent: Any, folder: Path) -> Work:
    async def done(number: int) -> str:
        return await _run(agent, SAID, Kept(work.database(folder, THREAD), "thread"))

    return done


async def _run(agent: Any, given: str, kept: Kept) -> str:
    with closing(SQLiteSession(kept.thread, kept.database)) as session:
        done = await Runner.run(agent, given, context=kept, session=session)
    return str(getattr(done.final_output, "text", done.final_output))
