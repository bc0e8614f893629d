"""`SystemPrompt`: what a model reads before a thread: the agent's own prompt and the guidance.

It is made once for a level, unless the agent's prompt is a function of the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.messages import SystemMessage

from echelons.errors import PromptFailed
from echelons.guards.gate import Halt
from echelons.identity.thread_history import Past
from echelons.nodes.model_call.state_function import StateFunction
from echelons.nodes.planning.spawn_plan import MAX_LISTED, SpawnPlan, SpawnRules
from echelons.prompts import fill_text, load_tool_texts
from echelons.text.input_limits import read_text
from echelons.text.sanitize import sanitize_value
from echelons.tree.names import DISMISS_SUBORDINATE, SPAWN_SUBORDINATE


class SystemPrompt:
    """The prompt of an agent and the guidance.

    Args:
        prompt: The agent's own: a text, a message, or a function of the state and the runtime.
        guidance: What stands after it.
    """

    def __init__(self, prompt: Any = "", guidance: str = "") -> None:
        is_fixed = isinstance(prompt, str | SystemMessage)
        self._guidance = guidance
        self._function = None if is_fixed else StateFunction(prompt, PromptFailed)
        self._message = _join_texts(guidance, prompt) if is_fixed else None

    def build(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | Halt | None:
        """Return the message, `None` if it is empty, or the halt that has ended its function.

        Raises:
            PromptFailed: The function raised, or returned no prompt.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        if self._function is None:
            return self._message
        prompt = self._function.invoke(past, state, config)
        return prompt if isinstance(prompt, Halt) else self._read_prompt(prompt, config)

    async def abuild(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | None:
        """Async version of `build`."""
        if self._function is None:
            return self._message
        return self._read_prompt(await self._function.ainvoke(past, state, config), config)

    def _read_prompt(self, prompt: Any, config: Mapping[str, Any]) -> SystemMessage | None:
        own = prompt if isinstance(prompt, SystemMessage) else read_text(prompt)
        if own is None:
            assert self._function is not None  # noqa: S101  a fixed prompt was checked
            raise self._function.refuse(prompt, config)
        return _join_texts(self._guidance, own)


class ListingPrompt(SystemPrompt):
    """The prompt of an agent and the guidance, and after them the agents that it has spawned.

    Args:
        prompt: The agent's own, as of `SystemPrompt`.
        guidance: What stands after it.
        rules: What it may spawn.
    """

    def __init__(self, prompt: Any, guidance: str, rules: SpawnRules) -> None:
        super().__init__(prompt, guidance)
        self._rules = rules

    def build(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | Halt | None:
        """Return the message, see `SystemPrompt.build`."""
        system = super().build(past, state, config)
        return system if isinstance(system, Halt) else self._list(system, past, state, config)

    async def abuild(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> SystemMessage | None:
        """Async version of `build`."""
        return self._list(await super().abuild(past, state, config), past, state, config)

    def _list(
        self,
        system: SystemMessage | None,
        past: Past,
        state: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> SystemMessage | None:
        living = [*SpawnPlan.build(self._rules, past, state, config).living.values()]
        if not living:
            return system
        lines = [f"- {each.name}: {each.quoted_role}" for each in living[-MAX_LISTED:]]
        if more := len(living) - len(lines):
            lines.append(f"(and {more} others)")
        listing = load_tool_texts(SPAWN_SUBORDINATE)["listing"]
        return _append_text(system, fill_text(listing, agents="\n".join(lines)))


def list_dismissed(system: SystemMessage | None, names: Collection[str]) -> SystemMessage | None:
    """Return a system message that says which of the agent's subordinates were dismissed."""
    if not names:
        return system
    listing = load_tool_texts(DISMISS_SUBORDINATE)["listing"]
    return _append_text(system, fill_text(listing, names=", ".join(sorted(names))))


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
