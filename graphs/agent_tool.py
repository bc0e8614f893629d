"""A whole tree as a LangChain tool, for agents of other frameworks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from echelons.agent import Agent
from echelons.delegation.contract import Contract
from echelons.errors import InvalidInput, invalid_field
from echelons.graphs.compiled_tree import compile_tree
from echelons.graphs.invocation.entry import separate_tool_call
from echelons.text.error_lines import redact_secrets
from echelons.tree.names import check_name


class TaskArgs(BaseModel):
    """Arguments of a tree without an input of its own."""

    task: str = Field(min_length=1, description="The task, complete in itself.")


class TreeTool(StructuredTool):
    """The tool of a tree, each of whose calls stores under a namespace of its own."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tree, see `BaseTool.run`."""
        return super().run(*args, **separate_tool_call(kwargs))

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Async version of `run`."""
        return await super().arun(*args, **separate_tool_call(kwargs))


def build_agent_tool(agent: Agent, name: str | None, description: str | None) -> BaseTool:
    """Return the tool of a tree, see `Agent.as_tool`."""
    contract = agent.contract or Contract()
    graph = compile_tree(agent, None, None, None, redact_secrets)
    purpose = agent.description if description is None else description
    if not isinstance(purpose, str) or not purpose.strip():
        raise invalid_field(agent.name, "description", purpose, "str; a tool needs one")

    # The host's config has its checkpointer, so the tree's steps are stored with its own.
    def run(config: RunnableConfig, **fields: Any) -> str:
        return _read_answer(graph.invoke(_build_input(fields), config), contract)

    async def arun(config: RunnableConfig, **fields: Any) -> str:
        return _read_answer(await graph.ainvoke(_build_input(fields), config), contract)

    return TreeTool.from_function(
        run,
        arun,
        name=check_name(name or agent.name),
        description=purpose,
        args_schema=contract.input or TaskArgs,
        infer_schema=False,
        handle_tool_error=True,
    )


def _build_input(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of the tree: a text as it is, other fields as JSON."""
    plain = {
        key: value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
        for key, value in fields.items()
    }
    only = next(iter(plain.values())) if len(plain) == 1 else None
    task = only if isinstance(only, str) else json.dumps(plain, ensure_ascii=False, default=str)
    return {"messages": [HumanMessage(task)]}


def _read_answer(state: Mapping[str, Any], contract: Contract) -> str:
    """Return the answer of the tree, if it is of the contract's output."""
    text = str(state["messages"][-1].text)
    if contract.output is None:
        return text
    try:
        return contract.read_output(text).model_dump_json(by_alias=True)
    except InvalidInput as error:
        raise ToolException(f"{text} ({error})") from error
