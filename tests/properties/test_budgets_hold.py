"""Whatever is granted, spent, asked, dismissed, forked and killed: all accounts add up."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.errors import EchelonsError
from echelons.guards.budget import Budget
from echelons.testing import Call, Reply, ScriptedModel
from tests.accounts import check_accounts, read_charges, read_grants
from tests.proof import sample

AMOUNTS = st.integers(1, 4000)
USAGE = st.tuples(st.integers(0, 900), st.integers(0, 900))
TASKS: Any = st.deferred(
    lambda: st.fixed_dictionaries(
        {
            "usage": USAGE,
            "asks": st.booleans(),
            "dies": st.integers(0, 9).map(lambda n: n == 0),
            "calls": st.lists(CALLS, max_size=2),
        }
    )
)
CALLS: Any = st.tuples(
    st.sampled_from(["north", "south", "camp", "many", "spawn"]),
    st.one_of(st.none(), st.fixed_dictionaries({"tokens": AMOUNTS})),
    st.deferred(lambda: TASKS),
)


class Killed(BaseException):
    """Ends a process in the middle of a call of a model."""


class Player:
    """Plays agents that do what their tasks say, and die once at each that says so."""

    def __init__(self) -> None:
        self.died: set[str] = set()

    def play(self, messages: Any) -> Reply:
        place = max(
            n for n, each in enumerate(messages) if each.type == "human" and not is_mail(each)
        )
        task = json.loads(str(messages[place].text))
        after = messages[place + 1 :]
        if task["dies"] and (key := str(messages[place].id)) not in self.died:
            self.died.add(key)
            raise Killed
        results = [each for each in after if each.type == "tool"]
        usage = tuple(task["usage"])
        if not results:
            asking = [Call("ask_superior", {"question": "Which?"})] if task["asks"] else []
            calls = [build_call(*each) for each in task["calls"]]
            return Reply("Beginning.", calls=calls or asking, usage=usage)
        open_ = [each for each in results if "needs_input" in str(each.text)]
        if open_ and len(after) <= len(results) + 1:
            quiet = json.dumps({"usage": [5, 5], "asks": False, "dies": False, "calls": []})
            question = re.search(r"\(question ([^)]+)\)", str(open_[0].text))
            args = {"message": quiet} | ({"answers": question[1]} if question else {})
            return Reply("", calls=[Call("call_subordinate", args)], usage=usage)
        return Reply("Done.", usage=usage)


def is_mail(message: Any) -> bool:
    return "mail" in message.response_metadata


def build_call(kind: str, budget: dict[str, int] | None, task: Any) -> Call:
    """Return the call with which an agent hands on a task."""
    more: dict[str, Any] = {"budget": budget} if budget else {}
    text = json.dumps(task)
    if kind == "many":
        requests = [{"subordinate": name, "message": text} for name in ("north", "south")]
        return Call("delegate_many", {"requests": requests, **more})
    if kind == "spawn":
        return Call("spawn_subordinate", {"role": "Scout", "message": text, **more})
    return Call("call_subordinate", {"subordinate": kind, "message": text, "reset": True, **more})


class Spending(RuleBasedStateMachine):
    """A head whose agents spend what they are granted, more than that, or nothing.

    Which of two agents side by side gets what is left is not the same each time, and so neither is
    whether one of them dies: no rule is left out for what has come of the ones before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.saver = SqliteCheckpointer(Path(self.folder.name) / "spending.sqlite")
        self.player = Player()
        self.open_turn = False
        self.questions: list[str] = []
        self.thread = ""

    def teardown(self) -> None:
        self.saver.close()
        self.folder.cleanup()

    def open(self) -> Session:
        """Begin a process anew: nothing of one that was killed is left in memory."""
        self.saver.close()
        self.saver = SqliteCheckpointer(Path(self.folder.name) / "spending.sqlite")
        spawn = Permissions(spawn=Spawn(levels=2, total=50), budget=Budget(tokens=9000))
        north = Agent("north", subordinates=[Agent("camp")])
        model = ScriptedModel(self.player.play)
        head = Agent("head", model=model, subordinates=[north, Agent("south")], permissions=spawn)
        session = Session(head, self.saver, thread="t")
        self.thread = session.thread_id
        return session

    def run(self, begin: Any) -> None:
        with self.open() as session:
            try:
                result = begin(session).result()
            except Killed:
                self.open_turn, self.questions = True, []
            else:
                self.questions = [each.id for each in result.questions]
                self.open_turn = bool(self.questions)

    @rule(task=TASKS, tokens=st.one_of(st.none(), AMOUNTS))
    def send(self, task: Any, tokens: int | None) -> None:
        """Give the head a task, with a budget of its own or that of its permissions.

        If its turn is open, answer what the user is asked, or go on after the death of a process.
        """
        if self.open_turn:
            answers = dict.fromkeys(self.questions, "This one")
            self.run(lambda session: session.answer(answers) if answers else session.resume())
            return
        budget = Budget(tokens=tokens) if tokens else None
        self.run(lambda session: session.send(json.dumps(task), budget=budget))

    @precondition(lambda self: self.thread)
    @rule(path=st.sampled_from(["head/north", "head/south", "head/north/camp"]))
    def dismiss(self, path: str) -> None:
        """Dismiss an agent, at work or not; it may be dismissed already."""
        with self.open() as session:
            try:
                session.dismiss(path)
            except EchelonsError:
                return

    @precondition(lambda self: self.thread)
    @rule(back=st.integers(0, 3))
    def fork(self, back: int) -> None:
        """Go back to where subordinates were about to begin, and let them begin again."""
        if self.open_turn:
            return
        with self.open() as session:
            past = [
                each
                for each in session.graph.get_state_history(session.config)
                if "delegate" in each.next
            ]
            if not past:
                return
            session.graph.update_state(past[min(back, len(past) - 1)].config, {}, as_node="reason")
        self.run(lambda session: session.resume())

    @invariant()
    def accounts_add_up(self) -> None:
        """What each agent has spent and reserved is what was charged, or is granted below it."""
        if self.thread:
            check_accounts(self.saver, self.thread)

    @invariant()
    def nothing_is_left_open(self) -> None:
        """Once a turn has ended, only what waits for an answer is reserved."""
        if not self.thread or self.open_turn:
            return
        grants = read_grants(self.saver, self.thread)
        assert all(
            each.record.closed or each.record.asks or each.id == "root" or each.record.fan_out
            for each in grants.values()
        )
        states = {each.state for each in read_charges(self.saver, self.thread).values()}
        assert states <= {"charged", "lost", "unknown", "reserved", "estimated"}


Spending.TestCase.settings = settings(
    max_examples=sample(8, 300), stateful_step_count=sample(8, 20), deadline=None
)
test_the_accounts_of_all_agents_add_up = Spending.TestCase
