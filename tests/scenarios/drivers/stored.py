"""The trees whose threads stand in the databases of `tests/fixtures`, and how each was begun.

Names, scripts and tools decide what the stored threads go on with: a change of them makes the
files unreadable for the tests, as a change of a tree does for its users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, BreakerPolicy, DelegationPolicy
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, report
from tests.told_lines import get_last

KEY = b"sealed before the rooms"
PLAIN = ("queue", "quorum", "paused", "routed")
SEALED = ("deep", "first", "finished")
"""The threads of the two databases; each has the tree of its name."""
FAILING = "failing"
"""The thread of the database from before circuits were kept by path."""
TASK = "go"


def turn_id(thread: str) -> str:
    """Return the id of the turn that a thread was begun with."""
    return f"turn-{thread}"


@dataclass
class Trees:
    """Trees that share a list of what their tools did.

    Attributes:
        dug: The effects: whose, in order.
        pause: Called with a path in the first thought of the head of `paused`.
    """

    dug: list[str] = field(default_factory=list)
    pause: Callable[[str], object] = str

    def tree(self, thread: str) -> Agent:
        """Return a new tree for a thread."""
        make: Callable[[], Agent] = getattr(self, f"_{thread}")
        return make()

    def _deep(self) -> Agent:
        """Three levels; the lowest digs, and then asks a person."""
        scripts = {
            "root": [delegate("middle", "look below"), "root is done"],
            "middle": [delegate("leaf", "dig and ask"), "middle is done"],
            "leaf": [self._dig("leaf"), ask("leaf"), "leaf is done"],
        }
        middle = Agent("middle", subordinates=[Agent("leaf", tools=self._tools())])
        return _head("root", scripts, middle)

    def _queue(self) -> Agent:
        """Two requests for one thread of one subordinate; the first asks a person."""
        scripts = {
            "head": [[delegate("clerk", "one"), delegate("clerk", "two")], "head is done"],
            "clerk": lambda messages: (
                ask("clerk") if get_last(messages).text == "one" else _last_words(messages)
            ),
        }
        return _head("head", scripts, Agent("clerk", tools=self._tools()))

    def _first(self) -> Agent:
        """A race of two who both ask a person; the first answer decides it."""
        race = delegate_many(delegate("ann", "dig"), delegate("bob", "dig"), join="first")
        scripts = {"head": [race, "head is done"], **self._digging("ann", "bob")}
        return _head(
            "head", scripts, *(Agent(each, tools=self._tools()) for each in ("ann", "bob"))
        )

    def _quorum(self) -> Agent:
        """Two of three, a level down: one has answered, one cannot, one asks a person."""
        asked = [delegate(name, "dig") for name in ("ann", "bob", "cid")]
        scripts = {
            "head": [delegate("chief", "find two"), "head is done"],
            "chief": [delegate_many(*asked, join="quorum", n=2), "chief is done"],
            **self._digging("ann"),
            "bob": [self._dig("bob"), "bob found"],
            "cid": [report("unable", "", reason="no spade")],
        }
        below = [Agent(each, tools=self._tools()) for each in ("ann", "bob", "cid")]
        return _head("head", scripts, Agent("chief", subordinates=below))

    def _paused(self) -> Agent:
        """One of two branches was paused before it began; the other has dug."""

        def begin(messages: Sequence[BaseMessage]) -> Any:
            if isinstance(get_last(messages), ToolMessage):
                return "head is done"
            self.pause("head/north")
            return [delegate("north", "dig"), delegate("south", "dig")]

        scripts = {
            "head": begin,
            "north": [self._dig("north"), "north found"],
            "south": [self._dig("south"), "south found"],
        }
        below = [Agent(each, tools=self._tools()) for each in ("north", "south")]
        return _head("head", scripts, *below)

    def _routed(self) -> Agent:
        """A request that names nobody: the best one asks a person, and another one is left."""
        scripts = {
            "head": [Call("call_subordinate", {"message": "Repair the bicycle"}), "head is done"],
            "mechanic": [ask("mechanic"), report("unable", "", reason="no spokes")],
            "smith": [self._dig("smith"), "smith found"],
        }
        mechanic = Agent("mechanic", tools=self._tools(), capabilities={"repair bicycles": 0.9})
        smith = Agent("smith", tools=self._tools(), capabilities={"repair bicycles": 0.5})
        return _head("head", scripts, Agent("shop", subordinates=[mechanic]), smith)

    def _finished(self) -> Agent:
        """A turn that is over; the next one goes on with the subordinate's conversation."""
        scripts = {
            "head": [delegate("clerk", "count"), "head is done"],
            "clerk": lambda messages: (
                self._dig("clerk")
                if isinstance(get_last(messages), HumanMessage)
                else f"{sum(isinstance(each, HumanMessage) for each in messages)} counted"
            ),
        }
        return _head("head", scripts, Agent("clerk", tools=self._tools()))

    def _failing(self) -> Agent:
        """An agent two levels down that fails until its circuit is open."""
        asked = [delegate("clerk", "count", reset=True)] * 3
        scripts: dict[str, Any] = {
            "head": [delegate("chief", "count"), "head is done"],
            "chief": [*asked, "chief is done"],
            "clerk": [ConnectionError("down")] * 3,
        }
        patient = DelegationPolicy(breaker=BreakerPolicy(seconds=10**9))
        chief = Agent("chief", subordinates=[Agent("clerk")])
        return Agent("head", model=ScriptedModel(scripts), subordinates=[chief], delegation=patient)

    def _digging(self, *names: str) -> dict[str, Any]:
        return {name: [self._dig(name), ask(name), f"{name} found"] for name in names}

    def _dig(self, who: str) -> Call:
        return Call("dig", {"who": who})

    def _tools(self) -> list[Callable[..., str]]:
        def dig(who: str) -> str:
            """Dig: the same twice is a mistake."""
            self.dug.append(who)
            return f"{who} dug"

        def ask(who: str) -> str:
            """Ask a person."""
            return f"{who} heard {interrupt(f'{who}?')}"

        return [dig, ask]


def ask(who: str) -> Call:
    """Return the call that asks a person."""
    return Call("ask", {"who": who})


def _last_words(messages: Sequence[BaseMessage]) -> str:
    return ", ".join(str(each.text) for each in messages if each.type != "ai")


def _head(name: str, scripts: dict[str, Any], *below: Agent) -> Agent:
    return Agent(name, guidance="", model=ScriptedModel(scripts), subordinates=below)
