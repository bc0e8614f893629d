"""langgraph-supervisor: supervisors that hand over to agents, one of them a supervisor itself."""

# pyright: reportMissingImports=false
from __future__ import annotations

import warnings
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor

from benchmarks.model import QuickModel
from benchmarks.peers import langgraph_family as family
from benchmarks.peers.langgraph_family import LOOK_UP, Graph, look_up
from benchmarks.peers.work import CHAIN, CROWD, SAID, THREAD, Size, Works

PACKAGES = ("langgraph-supervisor", *family.PACKAGES)
# Its agents are made with the function that its documentation names; LangGraph moved it.
warnings.filterwarnings("ignore", message=".*create_react_agent.*")


class HandedOver(QuickModel):
    """Answers when its own calls are answered: here everybody sees everybody's messages.

    Attributes:
        answered_by: Names of the tool messages that answer them.
    """

    answered_by: list[str] = []

    def _reply(self, messages: list[BaseMessage]) -> ChatResult:
        own = [each for each in messages if _names(each) in self.answered_by]
        return super()._reply(own or [each for each in messages if each.type == "human"])


def _names(message: BaseMessage) -> str | None:
    return message.name if isinstance(message, ToolMessage) else None


def opened(folder: Path, setting: str, size: Size) -> AbstractAsyncContextManager[Works]:
    """Build the trees."""

    def crowd(saver: AsyncSqliteSaver) -> Graph:
        names = family.members(size)
        below = [_agent(name, HandedOver(latency=size.latency)) for name in names]
        return _supervisor("root", below, saver, size.latency)

    return family.opened({CHAIN: _chain, CROWD: crowd, THREAD: _thread}, folder, setting)


def _chain(saver: AsyncSqliteSaver) -> Graph:
    leaf = _agent("leaf", HandedOver(wanted=[LOOK_UP], answered_by=[look_up.name]), [look_up])
    return _supervisor("root", [_supervisor("middle", [leaf])], saver)


def _thread(saver: AsyncSqliteSaver) -> Graph:
    supervisor = create_supervisor([_agent("leaf", HandedOver())], model=HandedOver(answer=SAID))
    return supervisor.compile(checkpointer=saver)


def _supervisor(
    name: str, below: list[Graph], saver: AsyncSqliteSaver | None = None, latency: float = 0.0
) -> Graph:
    own = f"{name}_supervisor"
    wanted: list[tuple[str, dict[str, Any]]] = [(f"transfer_to_{each.name}", {}) for each in below]
    model = HandedOver(wanted=wanted, answered_by=[f"transfer_back_to_{own}"], latency=latency)
    graph = create_supervisor(
        below,
        model=model,
        prompt=f"You are {name}.",
        supervisor_name=own,
        parallel_tool_calls=len(below) > 1,
    )
    return graph.compile(name=name, checkpointer=saver)


def _agent(name: str, model: HandedOver, tools: list[Any] | None = None) -> Graph:
    return create_react_agent(model, tools or [], prompt=f"You are {name}.", name=name)
