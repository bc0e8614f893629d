"""`SystemPrompt`: what a model reads before a thread: the agent's own prompt and the guidance.

It is made once for a level, unless the agent's prompt is a function of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import SystemMessage

from echelons.errors import ConfigurationError
from echelons.guards.gate import Halt
from echelons.identity.thread_history import Past
from echelons.nodes.model_call.state_function import StateFunction
from echelons.plans import Plan
from echelons.text.input_limits import read_text
from echelons.text.sanitize import sanitize_value


class SystemPrompt:
    """The prompt of an agent and the guidance.

    Args:
        prompt: The agent's own: a text, a message, or a function of the state and the runtime.
        guidance: The text after it.
    """

    def __init__(self, prompt: Any = "", guidance: str = "") -> None:
        is_fixed = isinstance(prompt, str | SystemMessage)
        self._guidance = guidance
        self._function = None if is_fixed else _build_function(prompt)
        self._message = _join_texts(guidance, prompt) if is_fixed else None

    def build(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Plan[SystemMessage | Halt | None]:
        """Return the message, `None` if it is empty, or the halt that has ended its function.

        Raises:
            ConfigurationError: The function raised, or returned no prompt.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        if self._function is None:
            return self._message
        prompt = yield self._function.build_step(past, state, config)
        return prompt if isinstance(prompt, Halt) else self._read_prompt(prompt, config)

    def _read_prompt(self, prompt: Any, config: Mapping[str, Any]) -> SystemMessage | None:
        own = prompt if isinstance(prompt, SystemMessage) else read_text(prompt)
        if own is None:
            assert self._function is not None  # noqa: S101  a fixed prompt was checked
            raise self._function.refuse(prompt, config)
        return _join_texts(self._guidance, own)


def _append_text(message: SystemMessage | None, text: str) -> SystemMessage:
    """Return a system message with a text at its end."""
    if message is None:
        return SystemMessage(text)
    if isinstance(message.content, str):
        content: Any = f"{message.content}\n\n{text}"
    else:
        content = [*message.content, {"type": "text", "text": text}]
    return message.model_copy(update={"content": content})


def _join_texts(guidance: str, prompt: str | SystemMessage) -> SystemMessage | None:
    """Return a system message with the agent's own prompt first, and the guidance after it."""
    if isinstance(prompt, str):
        text = "\n\n".join(filter(None, (prompt, guidance)))
        return SystemMessage(sanitize_value(text)) if text else None
    return _append_text(prompt, guidance) if guidance else prompt


def _build_function(prompt: Any) -> StateFunction:
    return StateFunction(
        prompt,
        ConfigurationError,
        code="prompt_failed",
        text="the prompt of {agent!r} failed: {why}; let the function return a str or a "
        "SystemMessage, and resume the turn",
    )
