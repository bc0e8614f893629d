"""Whatever is spawned, called, forked and resumed: who is there is what the rules say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command

from echelons import Agent, Permissions, Spawn, SqliteCheckpointer, ThreadStore
from echelons.testing import Call, ScriptedModel
from tests.proof import sample

AT_ONCE, TOTAL = 3, 8
MADE = re.compile(r"\[((?:mortal|drone)-[0-9a-f]{8})[ ,]")
LISTED = re.compile(r"^- (\S+): \"", re.MULTILINE)


@dataclass
class Made:
    """What the rules say of an agent.

    Attributes:
        kind: Its kind.
        keep: Whether it is kept.
        asks: Whether it waits for an answer of its superior.
        ended: Whether it is dismissed.
        below: How many agents it has made and keeps.
    """

    kind: str
    keep: bool
    asks: bool = False
    ended: bool = False
    below: int = 0


@dataclass
class Branch:
    """A state of the conversation: its checkpoint, and the agents by name."""

    config: Any
    agents: dict[str, Made] = field(default_factory=dict)

    @property
    def living(self) -> list[str]:
        return [name for name, each in self.agents.items() if not each.ended]


def lists(messages: Sequence[BaseMessage]) -> list[str]:
    return LISTED.findall(str(messages[0].text))


def play(messages: Sequence[BaseMessage]) -> Any:
    """Do what the task says, as JSON; then say who was there at first, and who is there now."""
    tasks = [place for place, each in enumerate(messages) if each.type == "human"]
    if not messages[tasks[-1] + 1 :]:
        said = json.loads(str(messages[-1].text))
        return [Call(name, arguments) for name, arguments in said["calls"]] or "nothing to do"
    results = [str(each.text) for each in messages[tasks[-1] :] if each.type == "tool"]
    return json.dumps({"there": lists(messages), "results": results})


class Growing(RuleBasedStateMachine):
    """A head that makes agents, which ask, spawn, and are called again, in any branch."""

    def __init__(self) -> None:
        super().__init__()
        self.saver = SqliteCheckpointer(":memory:")
        self.branches: list[Branch] = []
        self.number = count()
        self.names: set[str] = set()
        self.reopen()
        start = {"configurable": {"thread_id": "t"}}
        self.now = Branch(start)

    @rule()
    def reopen(self) -> None:
        """Go on with a tree that has just been built."""
        permissions = Permissions(
            contact_user=True, spawn=Spawn(at_once=AT_ONCE, total=TOTAL, levels=2)
        )
        head = Agent("head", model=ScriptedModel(play), permissions=permissions)
        self.graph = head.compile(self.saver)

    @rule(
        wanted=st.lists(
            st.tuples(st.sampled_from(["mortal", "drone"]), st.booleans(), st.booleans()),
            min_size=1,
            max_size=3,
        )
    )
    def spawn(self, wanted: list[tuple[str, bool, bool]]) -> None:
        """Make some at once, which answer or ask."""
        self.end_task()
        calls = []
        for kind, keep, asks in wanted:
            more = {"kind": kind, "keep": keep and kind == "mortal", "role": f"{kind}!"}
            calls.append(["spawn_subordinate", {**more, "message": self.write_task(asks)}])
        agents, made = self.now.agents, list[Made | None]()
        for kind, keep, asks in wanted:
            free = len(self.now.living) + sum(map(bool, made)) < AT_ONCE
            is_allowed = free and len(agents) + sum(map(bool, made)) < TOTAL
            ended = kind == "drone" and not asks
            keeps = keep and kind == "mortal"
            made.append(Made(kind, keeps, asks, ended) if is_allowed else None)

        said = self.send(calls)

        fresh = [each for each in made if each]
        names = [
            re.findall(r"\[((?:mortal|drone)-[0-9a-f]{8})[ ,]", each) for each in said["results"]
        ]
        found = [name for [name] in filter(None, names)]
        assert len(found) == len({*found}) == len(fresh), said
        assert not self.names & {*found}
        self.names |= {*found}
        # Errors are answered first, so the names tell which is which.
        for kind in ("mortal", "drone"):
            own = sorted(name for name in found if name.startswith(kind))
            assert len(own) == sum(each.kind == kind for each in fresh)
        there = {*said["there"]}
        for name in found:
            fitting = next(
                each
                for each in fresh
                if name.startswith(each.kind) and (name in there) == (not each.ended)
            )
            fresh.remove(fitting)
            agents[name] = fitting
        self.check(said)

    @precondition(lambda self: self.now.agents)
    @rule(place=st.integers(0, 99), how=st.sampled_from(["ok", "ask", "user", "spawn"]))
    def call(self, place: int, how: str) -> None:
        """Call one that was made earlier, whether it is there or not."""
        name = [*self.now.agents][place % len(self.now.agents)]
        made = self.now.agents[name]
        inner: list[Any] = []
        if how == "spawn":
            inner = [
                ["spawn_subordinate", {"role": "below", "message": self.write_task(), "keep": True}]
            ]
        elif how == "user":
            inner = [["ask_user", {"question": "?"}]]
        task = self.write_task(how == "ask", inner)

        said = self.send([["call_subordinate", {"subordinate": name, "message": task}]])

        [result] = said["results"]
        if made.ended:
            assert f"'{name}' is dismissed" in result
        else:
            made.asks = how == "ask"
            # One that does not outlive a task was there only because it had asked.
            made.ended = not made.asks and not made.keep
            made.below += how == "spawn" and made.kind == "mortal"
        self.check(said)

    @rule()
    def wait(self) -> None:
        """Have a turn in which nothing is done."""
        self.send([])

    @precondition(lambda self: "checkpoint_id" in self.now.config["configurable"])
    @rule()
    def note_branch(self) -> None:
        """Remember where the conversation is."""
        self.branches.append(deepcopy(self.now))

    @precondition(lambda self: self.branches)
    @rule(place=st.integers(0, 99))
    def fork(self, place: int) -> None:
        """Go on from an earlier place."""
        self.now = deepcopy(self.branches[place % len(self.branches)])

    @precondition(lambda self: "checkpoint_id" in self.now.config["configurable"])
    @invariant()
    def everybody_has_a_superior(self) -> None:
        """Look at all threads: each but the root's is of an agent that another has asked."""
        for each in ThreadStore(self.saver).trace("t").walk():
            assert each.agent == "head" or each.requests

    def write_task(self, asks: bool = False, calls: Sequence[Any] = ()) -> str:
        """Return a task that no agent has been given before."""
        made = [["ask_superior", {"question": "?"}]] if asks else list(calls)
        return json.dumps({"calls": made, "number": next(self.number)})

    def end_task(self) -> None:
        """Note that those have ended that do not outlive the turn before."""
        for each in self.now.agents.values():
            each.ended = each.ended or not (each.keep or each.asks)

    def send(self, calls: list[Any]) -> dict[str, Any]:
        """Have a turn, and return what the head has said."""
        self.end_task()
        task = HumanMessage(self.write_task(calls=calls))
        out = self.graph.invoke({"messages": [task]}, self.now.config)
        if "__interrupt__" in out:
            self.reopen()
            out = self.graph.invoke(Command(resume="yes"), {"configurable": {"thread_id": "t"}})
        self.now.config = self.graph.get_state({"configurable": {"thread_id": "t"}}).config
        text = str(out["messages"][-1].text)
        return dict(json.loads(text)) if calls else {}

    def check(self, said: dict[str, Any]) -> None:
        assert sorted(said["there"]) == sorted(self.now.living)

    def teardown(self) -> None:
        self.saver.close()


Growing.TestCase.settings = settings(
    max_examples=sample(12, 100), stateful_step_count=sample(12, 25), deadline=None
)
TestGrowing = Growing.TestCase
