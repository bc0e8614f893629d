"""Four levels, and a race on the third: two who ask a person below, and one who answers at once.

Something can be made to happen in the middle: while one of them works, or when it has just won.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, AsyncRun, Result, Run, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeRaces
from echelons.delegation.join import RaceEntry
from echelons.graphs import entry
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.told_lines import get_last

T = TypeVar("T")
ENDS = {"first": "b knows", "quorum": "1. c: c knows\n\n2. b: b knows"}
"""What the head says in the end if nothing happens, by join."""
PLACES = {"first": [2], "quorum": [3, 2]}
"""Who has won, in order."""
STATUSES = {
    "head": "root",
    "mid": "fulfilled",
    "a": "unable",
    "ascout": "unable",
    "b": "fulfilled",
    "bscout": "fulfilled",
}
LOST = "stopped: others have answered, and that is enough"


class Died(BaseException):
    """Stands for a process that ends where it is raised."""


def nothing(*_: str) -> None:
    """Take no note."""


def tree(
    join: str,
    dug: Callable[[str], object],
    at_work: Callable[[], Any] = nothing,
    thinks: Callable[[str], object] = nothing,
) -> Agent:
    """Return the tree.

    Args:
        join: How its race is joined.
        dug: Told of each effect.
        at_work: Called in the last thought of the scout of ``b``, and awaited if it has to be.
        thinks: Told of each thought, by the name of who has it.
    """

    def dig(who: str) -> str:
        """Dig: the same twice is a mistake."""
        dug(who)
        return f"{who} dug"

    def ask(who: str) -> str:
        """Ask the human."""
        return f"{who} heard {interrupt(f'{who}?')}"

    def working(messages: Sequence[BaseMessage]) -> Any:
        steps = [Call("dig", {"who": "bscout"}), Call("ask", {"who": "bscout"})]
        done = sum(isinstance(each, ToolMessage) for each in messages)
        if done < len(steps):
            return steps[done]
        happening = at_work()
        return _after(happening, "b found") if happening else "b found"

    ready = "c knows" if join == "quorum" else report("unable", "", reason="no time")
    scripts: dict[str, Any] = {
        "head": passing_on(delegate("mid", "go")),
        "mid": passing_on(race(join)),
        "a": [delegate("ascout", "look for a"), "a knows"],
        "ascout": [Call("dig", {"who": "ascout"}), Call("ask", {"who": "ascout"}), "a found"],
        "b": [delegate("bscout", "look for b"), "b knows"],
        "bscout": working,
        "c": [Call("dig", {"who": "c"}), ready],
    }
    scouts = {name: Agent(name, tools=[dig, ask]) for name in ("ascout", "bscout")}
    mid = Agent(
        "mid",
        subordinates=[
            Agent("a", subordinates=[scouts["ascout"]]),
            Agent("b", subordinates=[scouts["bscout"]]),
            Agent("c", tools=[dig]),
        ],
    )
    noted = {name: _noted(name, script, thinks) for name, script in scripts.items()}
    return Agent("head", model=ScriptedModel(noted), subordinates=[mid])


def _noted(name: str, script: Any, thinks: Callable[[str], object]) -> Any:
    def step(messages: Sequence[BaseMessage]) -> Any:
        thinks(name)
        said = sum(isinstance(each, AIMessage) for each in messages)
        return script[said] if isinstance(script, list) else script(messages)

    return step


async def _after(happening: Awaitable[Any], said: str) -> str:
    await happening
    return said


def race(join: str) -> Call:
    """Return the call that has a, b and c race."""
    requests = [{"message": f"Ask {name}", "subordinate": name} for name in "abc"]
    count = {"n": 2} if join == "quorum" else {}
    return Call("delegate_many", {"requests": requests, "join": join, **count})


def passing_on(call: Call) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a script that makes a call and says what it was answered."""

    def step(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        return call if isinstance(last, HumanMessage) else str(last.text)

    return step


class Race:
    """A tree at work on a file, in sessions of which each knows nothing of the one before.

    Attributes:
        happens: What is to happen, once, when the moment has come; it may be async in a loop.
        dug: The effects.
        model: What all agents think with.
        session: The session of now.
        run: Its latest run.
    """

    def __init__(self, database: Path, join: str, moment: str = "") -> None:
        self.happens: Callable[[], Any] | None = None
        self.dug: list[str] = []
        self.run: Run | AsyncRun
        self.moment = moment
        self._database = database
        self.agent = tree(join, self.dug.append, lambda: self.reach("at work"))
        assert isinstance(self.agent.model, ScriptedModel)
        self.model = self.agent.model
        self.task: asyncio.Task[Result]
        self._open()

    def reopen(self) -> None:
        """Go on in another session, on another connection."""
        self.saver.close()
        self._open()

    def _open(self) -> None:
        self.saver = SqliteCheckpointer(self._database)
        self.session = Session(self.agent, self.saver, thread="race")

    def go(self, what: str, *args: Any) -> Result:
        """Send, answer or resume."""
        self.run = run = getattr(self.session, what)(*args)
        result: Result = run.result()
        return result

    async def ago(self, what: str, *args: Any) -> Result:
        """Do what ``go`` does in an event loop."""
        self.run = run = await getattr(self.session, f"a{what}")(*args)
        self.task = asyncio.create_task(run.result())
        return await self.task

    def asked(self, result: Result) -> dict[str, str]:
        """Return the ids of what a run asks, by question."""
        assert [each.id for each in result.questions] == [each.id for each in self.session.inbox()]
        return {each.value: each.id for each in result.questions}

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Let something happen where somebody has won."""
        owner = self

        class Telling(TreeRaces):
            """Races at the end of which something happens."""

            decided = False

            def place(self, entrant: RaceEntry) -> int:
                place = super().place(entrant)
                self.decided = entrant.group == 2
                if self.decided and not _in_a_loop():
                    owner.reach("decided")
                return place

            async def arun(self, work: Callable[[], T]) -> T:
                done = await super().arun(work)
                if self.decided and (happening := owner.reach("decided")):
                    await happening
                return done

        patch.setattr(entry, "TreeRaces", Telling)

    def reach(self, moment: str) -> Any:
        if moment != self.moment or self.happens is None:
            return None
        happens, self.happens = self.happens, None
        return happens()

    # What is there in the end

    @property
    def has_happened(self) -> bool:
        """Whether the moment has come."""
        return self.happens is None

    def told(self) -> dict[str, tuple[str, str]]:
        """Return the statuses of all, and why."""
        return {
            each.agent: (each.status, each.requests[-1].reason if each.requests else "")
            for each in self.session.trace().walk()
        }

    def places(self) -> list[Any]:
        """Return the winners of all races."""
        cursor = self.saver.conn.execute("SELECT key FROM ledger_values WHERE key LIKE '%/race/%'")
        found = [self.saver.ledger.get(name) for (name,) in cursor.fetchall()]
        return [each.value for each in found if each]

    def rows(self) -> dict[str, str]:
        """Return the statuses of the delegations, as SQL tells them."""
        query = "SELECT subordinate, status FROM delegations WHERE superior_path = 'head/mid'"
        return dict(self.saver.conn.execute(query).fetchall())


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
