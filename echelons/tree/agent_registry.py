"""`AgentRegistry`: the agents of one thread, with what each of them is doing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from echelons.errors import UnknownPath
from echelons.text.sanitize import join_printable
from echelons.tree.drawing import draw_branches
from echelons.tree.names import PATH_SEPARATOR


class AgentState(StrEnum):
    """What an agent is doing; the first that fits.

    `PAUSED`: it was told to pause. `WAITING`: for an answer, see `AgentRecord.waiting_for`.
    `WORKING`: a process is at work on its request. `FAILED`: it could not fulfil its latest
    request. `DONE`: it has. `IDLE`: it was asked nothing yet, or its process has ended.
    """

    PAUSED = "paused"
    WAITING = "waiting"
    WORKING = "working"
    FAILED = "failed"
    DONE = "done"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent of a thread.

    Attributes:
        id: Its id on this thread, the same in every process; a copied thread has others.
        path: Its path, such as `"head/north"`.
        superior_id: Id of its superior; empty for the root.
        subordinate_ids: Ids of its subordinates.
        thread_ids: Its own threads, one for each conversation.
        since: When it began, ISO 8601, UTC; empty if it has not.
        state: What it is doing.
        waiting_for: Whose answer it waits for: paths of agents, names of people, or `"user"`.
        question: What it has asked a person, in one line; empty if nothing is open.
    """

    id: str
    path: str
    superior_id: str
    subordinate_ids: tuple[str, ...] = ()
    thread_ids: tuple[str, ...] = ()
    since: str = ""
    state: AgentState = AgentState.IDLE
    waiting_for: tuple[str, ...] = ()
    question: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.rpartition(PATH_SEPARATOR)[2]

    @property
    def level(self) -> int:
        """How many superiors it has; 0 for the root."""
        return self.path.count(PATH_SEPARATOR)


@dataclass(frozen=True)
class AgentRegistry:
    """The agents of one thread, on the branch on which it goes on.

    Attributes:
        agents: All agents, superiors first.
    """

    agents: tuple[AgentRecord, ...]
    _by_id: dict[str, AgentRecord] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {each.id: each for each in self.agents})

    @cached_property
    def _by_path(self) -> dict[str, AgentRecord]:
        return {each.path: each for each in self.agents}

    def get(self, agent: str) -> AgentRecord:
        """Return an agent by its path or its id.

        Raises:
            UnknownPath: There is no such agent.
        """
        found = self._by_path.get(agent) or self._by_id.get(agent)
        if found is None:
            raise UnknownPath(agent, sorted(self._by_path))
        return found

    def subtree(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return an agent and all below it, superiors first."""
        return tuple(self._walk(self.get(agent)))

    def ancestors(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return the superiors of an agent, the root first."""
        found, above = self.get(agent), list[AgentRecord]()
        while found.superior_id:
            found = self._by_id[found.superior_id]
            above.append(found)
        return tuple(reversed(above))

    def siblings(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return the other agents with the same superior."""
        found = self.get(agent)
        if not found.superior_id:
            return ()
        above = self._by_id[found.superior_id]
        return tuple(self._by_id[each] for each in above.subordinate_ids if each != found.id)

    def draw(self, agent: str | None = None, depth: int | None = None) -> str:
        """Return the agents as a tree of text, each with its state.

        Args:
            agent: The agent at the top, by its path or its id; `None` for the root.
            depth: Levels below it that are drawn; `None` for all.
        """
        return "\n".join(self._draw(self.get(agent) if agent else self.agents[0], depth))

    def __str__(self) -> str:
        return self.draw()

    def _walk(self, agent: AgentRecord) -> Iterator[AgentRecord]:
        yield agent
        for each in agent.subordinate_ids:
            yield from self._walk(self._by_id[each])

    def _draw(self, agent: AgentRecord, depth: int | None) -> list[str]:
        line = f"{agent.name}: {describe_state(agent)}"
        if depth == 0 and agent.subordinate_ids:
            hidden = len(tuple(self._walk(agent))) - 1
            return [f"{line} (and {hidden} below)"]
        left = None if depth is None else depth - 1
        below = [self._draw(self._by_id[each], left) for each in agent.subordinate_ids]
        return [line, *draw_branches(below)]


def describe_state(agent: AgentRecord) -> str:
    """Return what an agent is doing, in one line."""
    whom = f" for {', '.join(agent.waiting_for)}" if agent.waiting_for else ""
    asked = f": {join_printable(agent.question)}" if agent.question else ""
    return f"{agent.state}{whom}{asked}"
