"""Two siblings that send each other messages, for tests of these in one process and in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from echelons import Agent, DelegationPolicy, effect
from echelons.testing import Call, ScriptedModel, delegate


def tell(to: str, text: str) -> Call:
    return Call("send_message", {"to": to, "message": text})


def chat(number: int) -> Agent:
    """Return a tree whose siblings send each other so many messages, and wait for the last."""

    def hold(message: Any) -> str:
        return "hold" if message.text == "one 7" else "copy"

    def talk(own: str, other: str, expected: int) -> Any:
        def step(messages: Sequence[BaseMessage]) -> Any:
            sent = sum(
                call["name"] == "send_message"
                for each in messages
                if isinstance(each, AIMessage)
                for call in each.tool_calls
            )
            if sent < number:
                return tell(other, f"{own} {sent}")
            known = sum("mail" in each.response_metadata for each in messages)
            return f"{own} is done" if known >= expected else Call("look")

        return step

    @effect(reads_only=True, polls=True)
    def look() -> str:
        """Look whether somebody has written."""
        return "nothing"

    names = {"one": talk("one", "two", number), "two": talk("two", "one", number - 1)}
    scripts: dict[str, Any] = {
        "head": [delegate("north", "go"), "over"],
        "north": [[delegate("one", "go"), delegate("two", "go")], "north is done"],
        **names,
    }
    below = [Agent(name, tools=[look]) for name in names]
    policy = DelegationPolicy(sibling_messages=hold)
    north = Agent("north", subordinates=below, delegation=policy)
    return Agent("head", model=ScriptedModel(scripts), subordinates=[north])
