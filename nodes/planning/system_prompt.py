"""`SystemPrompt`: what a model reads before a thread: the guidance and the agent's own prompt.

It is made once for a level, unless the agent's prompt is a function of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.runtime import get_runtime

from echelons.agent import bind_state
from echelons.errors import PromptFailed
from echelons.guards.gate import Halt
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past
from echelons.nodes.tool_execution.async_only import arun_function, run_function
from echelons.nodes.tool_execution.journaled_call import PRIVATE_KEYS
from echelons.text.error_lines import describe_failure
from echelons.text.input_limits import read_text
from echelons.text.sanitize import sanitize_value
from echelons.tree.names import PATH_SEPARATOR


class SystemPrompt:
    """The guidance and the prompt of an agent.

    Args:
        prompt: The agent's own: a text, a message, or a function of the state and the runtime.
        guidance: What stands before it.
    """

    def __init__(self, prompt: Any = "", guidance: str = "") -> None:
        self._guidance = guidance
        self._bind = None if isinstance(prompt, str | SystemMessage) else bind_state(prompt)
        self._message = None if self._bind else _join_texts(guidance, prompt)

    def build(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | Halt | None:
        """Return the message, `None` if it is empty, or the halt that has ended its function.

        Raises:
            PromptFailed: The function raised, or returned no prompt.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        if self._bind is None:
            return self._message
        try:
            prompt = run_function(self._bind_function(past, state), config)
        except Exception as error:
            raise _build_failure(error, config) from error
        return prompt if isinstance(prompt, Halt) else self._read_prompt(prompt, config)

    async def abuild(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | None:
        """Async version of `build`."""
        if self._bind is None:
            return self._message
        try:
            prompt = await arun_function(self._bind_function(past, state), config)
        except Exception as error:
            raise _build_failure(error, config) from error
        return self._read_prompt(prompt, config)

    def _bind_function(self, past: Past, state: Mapping[str, Any]) -> Callable[[], Any]:
        assert self._bind is not None  # noqa: S101  asked by the callers
        shown = {key: each for key, each in state.items() if key not in PRIVATE_KEYS}
        shown["messages"] = [*past.messages, *state["messages"]]
        return self._bind(shown, get_runtime())

    def _read_prompt(self, prompt: Any, config: Mapping[str, Any]) -> SystemMessage | None:
        own = prompt if isinstance(prompt, SystemMessage) else read_text(prompt)
        if own is None:
            path = PATH_SEPARATOR.join(require_identity(config).path)
            raise PromptFailed(path, f"it returned a value of type {type(prompt).__name__}")
        return _join_texts(self._guidance, own)


def _join_texts(guidance: str, prompt: str | SystemMessage) -> SystemMessage | None:
    if isinstance(prompt, str):
        text = "\n\n".join(filter(None, (guidance, prompt)))
        return SystemMessage(sanitize_value(text)) if text else None
    if not guidance:
        return prompt
    if isinstance(prompt.content, str):
        content: Any = f"{guidance}\n\n{prompt.content}"
    else:
        content = [{"type": "text", "text": guidance}, *prompt.content]
    return prompt.model_copy(update={"content": content})


def _build_failure(error: Exception, config: Mapping[str, Any]) -> PromptFailed:
    why = describe_failure(error, PromptFailed, get_failure_log(config).redactor)
    return PromptFailed(PATH_SEPARATOR.join(require_identity(config).path), why)
