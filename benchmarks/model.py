"""The chat model of the benchmarks: as cheap as one can be, and the same for every rival."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from benchmarks.tally import TALLY


class QuickModel(BaseChatModel):
    """Makes its calls when it is given a task, and answers when they are answered.

    Attributes:
        wanted: Name and arguments of each call, in order; none for an answer at once.
        answer: What it says in the end.
        latency: Seconds that each turn takes.
    """

    wanted: list[tuple[str, dict[str, Any]]] = []
    answer: str = "done"
    latency: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "quick"

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind the tools as a provider's model does: as schemas that go with every call."""
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self.latency:
            time.sleep(self.latency)
        return self._reply(messages)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self.latency:
            await asyncio.sleep(self.latency)
        return self._reply(messages)

    def _reply(self, messages: list[BaseMessage]) -> ChatResult:
        TALLY.turns += 1
        if self.wanted and not isinstance(messages[-1], ToolMessage):
            calls = [
                {"name": name, "args": args, "id": f"call_{len(messages)}_{place}"}
                for place, (name, args) in enumerate(self.wanted)
            ]
            message = AIMessage("", tool_calls=calls)
        else:
            message = AIMessage(self.answer)
        return ChatResult(generations=[ChatGeneration(message=message)])
