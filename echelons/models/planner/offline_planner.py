"""The offline planner as a LangChain chat model, a wrapper of `reply_plan`.

Agents without a model of their own get one, through `models.resolution`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from echelons.language.task_shares import split_task
from echelons.models.planner.reply_message import PROVIDER, build_message, split_message
from echelons.models.planner.reply_plan import PLANNER_NAME, NearestNote, TaskSharing
from echelons.tree.names import get_provider_tool_name


class OfflinePlanner(BaseChatModel):
    """A chat model that plans by rules, offline and deterministically.

    It splits the last human message among the subordinates whose capabilities it names,
    calls the agent's own tools with arguments taken from it, and composes what comes back.
    It does not reason: if no rule matches, it replies that it cannot do the task. The same
    messages and tools give the same answer, call ids included; it keeps no state between calls
    and needs no key and no network. Replies carry `model_name: "offline planner"`.

    Examples:
        >>> planner = OfflinePlanner().bind_tools([
        ...     {"name": "find_food", "description": "Places to eat",
        ...      "parameters": {"type": "object", "required": ["place"],
        ...                     "properties": {"place": {"type": "string"}}}},
        ... ])
        >>> planner.invoke("Where can we eat in Rome?").tool_calls[0]["args"]
        {'place': 'Rome'}
    """

    sharing: TaskSharing = Field(default=split_task, exclude=True, repr=False)
    """Selects the subordinates to ask; by their declared capabilities, if left out."""

    describe_nearest: NearestNote | None = Field(default=None, exclude=True, repr=False)
    """Returns what a refusal adds: what comes nearest to the task; nothing, if left out."""

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the planner with tools bound; a `tool_choice` is accepted but has no effect.

        Args:
            tools: Tools in any form that LangChain can convert to OpenAI's.
            tool_choice: Stored in the binding, otherwise ignored.
            **kwargs: Further options, stored in the binding.
        """
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        # It has no provider that could run a tool.
        able = [convert_to_openai_tool(each) for each in tools if not get_provider_tool_name(each)]
        return self.bind(tools=able, **kwargs)

    @property
    def _llm_type(self) -> str:
        return "echelons-offline-planner"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider=PROVIDER, ls_model_name=PLANNER_NAME, ls_model_type="chat"
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in split_message(self._answer(messages, kwargs)):
            yield ChatGenerationChunk(message=piece)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in split_message(self._answer(messages, kwargs)):
            yield ChatGenerationChunk(message=piece)

    def _answer(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> AIMessage:
        tools = options.get("tools") or ()
        return build_message(messages, tools, self.sharing, self.describe_nearest)
