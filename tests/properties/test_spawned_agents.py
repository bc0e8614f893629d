"""Whatever is spawned, called, dismissed, forked, killed: who is there is what the rules say."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command

from echelons import Agent, Permissions, Spawn, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.queries import run_plan
from echelons.checkpoints.threads.dismissal import dismiss_agent
from echelons.testing import Call, ScriptedModel
from tests.proof import sample
from tests.told_lines import is_said, list_spawned

AT_ONCE, TOTAL = 3, 8
IN_TURN = "in a turn"
MADE = re.compile(r"((?:mortal|drone)-[0-9a-f]{8})[ ,]")


class Killed(BaseException):
    """Ends a process in the middle of a call of a model."""


@dataclass
class Made:
    """What the rules say of an agent.

    Attributes:
        kind: Its kind.
        keep: Whether it is kept.
        asks: Whether it waits for an answer of its superior.
        ended: Whether it has come to its end, as its kind does.
        below: How many agents it has made and keeps.
        dismissed_at: The root's checkpoint after which it was dismissed, or `IN_TURN`; empty if it
            was not.
    """

    kind: str
    keep: bool
    asks: bool = False
    ended: bool = False
    below: int = 0
    dismissed_at: str = ""

    @property
    def is_there(self) -> bool:
        return not (self.ended or self.dismissed_at)


@dataclass
class Branch:
    """A state of the conversation: its checkpoint, and the agents by name."""

    config: Any
    agents: dict[str, Made] = field(default_factory=dict)

    @property
    def living(self) -> list[str]:
        return [name for name, each in self.agents.items() if each.is_there]

    @property
    def checkpoint(self) -> str:
        return str(self.config["configurable"].get("checkpoint_id", ""))


def play(messages: Sequence[BaseMessage]) -> Any:
    """Do what the task says, as JSON; then say who was there at first, and who is there now."""
    tasks = [place for place, each in enumerate(messages) if is_said(each)]
    if not any(each.type == "ai" for each in messages[tasks[-1] :]):
        said = json.loads(str(messages[tasks[-1]].text))
        return [Call(name, arguments) for name, arguments in said["calls"]] or "nothing to do"
    results = [str(each.text) for each in messages[tasks[-1] :] if each.type == "tool"]
    return json.dumps({"there": list_spawned(messages), "results": results})


class Growing(RuleBasedStateMachine):
    """A head that makes agents, which ask, spawn, and are called again, in any branch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.saver = self.open()
        self.calls_left = 0
        self.branches: list[Branch] = []
        self.number = count()
        self.names: set[str] = set()
        self.left: set[str] = set()
        self.ordered: dict[str, set[str]] = {}
        self.is_forked, self.begun_at = False, "not yet"
        self.reopen()
        start = {"configurable": {"thread_id": "t"}}
        self.now = Branch(start)

    def open(self) -> SqliteCheckpointer:
        return SqliteCheckpointer(Path(self.folder.name) / "grown.sqlite")

    def speak(self, messages: Sequence[BaseMessage]) -> Any:
        """Do what the task says, or die in this call."""
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Killed
        return play(messages)

    @rule()
    def reopen(self) -> None:
        """Go on in a process that has just begun, with a tree that has just been built."""
        self.saver.close()
        self.saver = self.open()
        permissions = Permissions(
            contact_user=True, spawn=Spawn(at_once=AT_ONCE, total=TOTAL, levels=2)
        )
        head = Agent("head", model=ScriptedModel(self.speak), permissions=permissions)
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
        self.begin_branch()
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
            {*re.findall(r"((?:mortal|drone)-[0-9a-f]{8})[ ,]", each)} for each in said["results"]
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
        if not made.is_there:
            why = "was dismissed, for good" if made.dismissed_at else "is dismissed: "
            assert f"'{name}' {why}" in result
        else:
            made.asks = how == "ask"
            # One that does not outlive a task was there only because it had asked.
            made.ended = not made.asks and not made.keep
            made.below += how == "spawn" and made.kind == "mortal"
        self.check(said)

    @precondition(lambda self: self.now.agents and not self.is_forked)
    @rule(place=st.integers(0, 99), graceful=st.booleans())
    def dismiss(self, place: int, graceful: bool) -> None:
        """Dismiss one from outside, whether it is there or not."""
        name = [*self.now.agents][place % len(self.now.agents)]
        made = self.now.agents[name]

        plan = dismiss_agent("t", f"head/{name}", {}, "anna", graceful=graceful)
        done = run_plan(self.saver, plan)

        # A graceful one is still to be made an immediate one.
        assert done.is_new or made.dismissed_at
        if not made.dismissed_at:
            made.dismissed_at = self.now.checkpoint
            self.ordered.setdefault(self.now.checkpoint, set()).add(name)

    @precondition(lambda self: self.now.agents)
    @rule(place=st.integers(0, 99))
    def dismiss_by_head(self, place: int) -> None:
        """Let the head dismiss one, whether it is there or not."""
        name = [*self.now.agents][place % len(self.now.agents)]
        made = self.now.agents[name]

        said = self.send([["dismiss_subordinate", {"name": name}]])

        [result] = said["results"]
        if made.is_there:
            assert result == f"{name} is dismissed, with all below it"
            made.dismissed_at = IN_TURN
        elif made.dismissed_at:
            assert result == f"Error: '{name}' was dismissed already"
        else:
            assert result.startswith(f"Error: '{name}' is dismissed: ")
        self.check(said)

    @rule(calls=st.integers(1, 7))
    def kill(self, calls: int) -> None:
        """Let the process die in one of the next calls of a model."""
        self.calls_left = calls

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
        self.is_forked, self.begun_at = True, "not yet"

    @precondition(lambda self: "checkpoint_id" in self.now.config["configurable"])
    @invariant()
    def everybody_has_a_superior(self) -> None:
        """Look at all threads: each but the root's is of an agent that another has asked."""
        for each in ThreadStore(self.saver).trace("t").walk():
            assert each.agent == "head" or each.requests

    @precondition(lambda self: self.now.checkpoint and not self.is_forked)
    @invariant()
    def the_registry_says_the_same(self) -> None:
        """Look at the registry: it has the same agents, and nobody below one that is gone."""
        registry = ThreadStore(self.saver).registry("t")
        states = {str(each.path): each.state for each in registry.agents}
        assert len({each.id for each in registry.agents}) == len(states)
        for name, each in self.now.agents.items():
            # Between two turns the head works on nothing that one could be kept for.
            is_gone = not each.is_there or not (each.keep or each.asks)
            assert (states[f"head/{name}"] == "dismissed") == is_gone, name
        for path, state in states.items():
            above = path.rpartition("/")[0]
            assert state == "dismissed" or states.get(above) != "dismissed", path

    def write_task(self, asks: bool = False, calls: Sequence[Any] = ()) -> str:
        """Return a task that no agent has been given before."""
        made = [["ask_superior", {"question": "?"}]] if asks else list(calls)
        return json.dumps({"calls": made, "number": next(self.number)})

    def begin_branch(self) -> None:
        """Note who is dismissed on the branch that begins: what was ordered at its very start
        holds only if nothing has gone on from there yet.
        """
        start = self.now.checkpoint
        if start == self.begun_at:
            return
        if start in self.left:
            for each in self.now.agents.values():
                if each.dismissed_at == start:
                    each.dismissed_at = ""
        else:
            for name in self.ordered.get(start, ()):
                self.now.agents[name].dismissed_at = start
        self.left.add(start)
        self.begun_at, self.is_forked = start, False

    def end_task(self) -> None:
        """Note that those have ended that do not outlive the turn before."""
        for each in self.now.agents.values():
            each.ended = each.ended or not (each.keep or each.asks)

    def send(self, calls: list[Any]) -> dict[str, Any]:
        """Have a turn, and return what the head has said."""
        self.begin_branch()
        self.end_task()
        task = HumanMessage(self.write_task(calls=calls))
        out = self.run({"messages": [task]}, self.now.config)
        if "__interrupt__" in out:
            self.reopen()
            out = self.run(Command(resume="yes"), {"configurable": {"thread_id": "t"}})
        self.now.config = self.graph.get_state({"configurable": {"thread_id": "t"}}).config
        text = str(out["messages"][-1].text)
        return dict(json.loads(text)) if calls else {}

    def run(self, given: Any, config: Any) -> dict[str, Any]:
        """Run the graph; if its process dies, another one goes on."""
        try:
            return dict(self.graph.invoke(given, config))
        except Killed:
            event("killed")
            self.reopen()
            return dict(self.graph.invoke(None, {"configurable": {"thread_id": "t"}}))

    def check(self, said: dict[str, Any]) -> None:
        assert sorted(said["there"]) == sorted(self.now.living)

    def teardown(self) -> None:
        self.saver.close()
        self.folder.cleanup()


Growing.TestCase.settings = settings(
    max_examples=sample(12, 100), stateful_step_count=sample(12, 25), deadline=None
)
TestGrowing = Growing.TestCase
