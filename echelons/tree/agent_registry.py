"""`AgentRegistry`: the agents of one thread with what they do, and drawings of trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from echelons.errors import UnknownPath
from echelons.text.error_lines import join_printable
from echelons.text.input_limits import shorten_repr
from echelons.tree.agent_path import AgentPath
from echelons.tree.members import Member, list_monitors, walk_tree
from echelons.tree.names import PATH_SEPARATOR

MAX_LABEL_LENGTH = 80  # characters of a description in a Mermaid label

# All ASCII punctuation but ' ( ) , - and .
_MARKUP = re.compile(r"[!-&*+/:-@\[-`{-~]")
# Sequences that Mermaid interprets even in entities: \n, formulas in $$, icons as fa:fa-car.
_SEQUENCE = re.compile(r"[\\$](?=.)|fa\w?:(?=fa)")
_WORD_JOINER = "\u2060"  # invisible; inserted to break up a sequence


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """The drawing of a tree; a notebook shows it as Mermaid, `print` as text.

    Examples:
        >>> from echelons import Agent
        >>> eat = Agent("restaurants", "Finds places to eat")
        >>> print(Agent("head", "Plans trips", subordinates=[eat]).draw())
        head: Plans trips
        └── restaurants: Finds places to eat
    """

    root: Member

    @property
    def text(self) -> str:
        """The tree as lines of text."""
        return "\n".join(_draw_member(self.root))

    @property
    def mermaid(self) -> str:
        """The tree as a Mermaid flowchart."""
        names = {place.path: f"agent{number}" for number, place in enumerate(walk_tree(self.root))}
        places = {place.member.name: place.path for place in walk_tree(self.root)}
        lines = ["flowchart TD"]
        for place in walk_tree(self.root):
            lines.append(f'    {names[place.path]}["{_format_mermaid_label(place.member)}"]')
            if len(place.path) > 1:
                lines.append(f"    {names[place.path[:-1]]} --> {names[place.path]}")
        for place in walk_tree(self.root):
            for number, monitor in enumerate(list_monitors(place.member)):
                node = f"{names[place.path]}monitor{number}"
                lines.append(f'    {node}(["{_format_mermaid_label(monitor)}"])')
                watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or place.member.name
                lines.append(f"    {node} -. watches .-> {names[places[watched]]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        # Shown by the plain Python prompt, and by notebooks without Mermaid.
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid}\n```"


def draw_branches(branches: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of some drawn subtrees, as branches of the line above them."""
    for place, (first, *more) in enumerate(branches, start=1):
        turn, below = ("└── ", "    ") if place == len(branches) else ("├── ", "│   ")
        yield turn + first
        yield from (below + line for line in more)


def draw_guides(levels: Sequence[int]) -> list[str]:
    """Return the guides before each row of a tree, given the levels of its rows.

    >>> draw_guides([0, 1, 2, 1])
    ['', '├── ', '│   └── ', '└── ']
    """
    guides: list[str] = []
    # From the last row upwards: of each level, whether a row further down continues it.
    continues: list[bool] = []
    for level in reversed(levels):
        del continues[level + 1 :]
        continues += [False] * (level + 1 - len(continues))
        outer = "".join("│   " if is_open else "    " for is_open in continues[1:level])
        guides.append(outer + ("├── " if continues[level] else "└── ") if level else "")
        continues[level] = True
    return guides[::-1]


def _draw_member(member: Member) -> list[str]:
    branches = [_draw_member(subordinate) for subordinate in member.subordinates]
    for monitor in list_monitors(member):
        watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or member.name
        branches.append([f"{_format_label(monitor)} (monitor of {watched})"])
    return [_format_label(member), *draw_branches(branches)]


def _format_label(member: Member) -> str:
    summary = join_printable(member.description)
    return f"{member.name}: {summary}" if summary else member.name


def _format_mermaid_label(member: Member) -> str:
    text = escape_mermaid(member.description)
    return f"<b>{member.name}</b><br/>{text}" if text else f"<b>{member.name}</b>"


def escape_mermaid(text: str) -> str:
    """Return a text for a Mermaid label, shortened, as a line in which nothing is interpreted."""
    # Mermaid interprets directives and styles in labels too, but not numbered entities.
    summary = join_printable(text)
    short = summary if len(summary) <= MAX_LABEL_LENGTH else summary[: MAX_LABEL_LENGTH - 1] + "…"
    apart = _SEQUENCE.sub(rf"\g<0>{_WORD_JOINER}", short)
    return _MARKUP.sub(lambda match: f"#{ord(match[0])};", apart)


class AgentKind(StrEnum):
    """The kind of an agent.

    `DECLARED`: an `Agent` of the tree, or one that the tree no longer has. `HUMAN`: a `Human`.
    `FOREIGN`: a graph, a Runnable or a function. `MORTAL` and `DRONE`: those that were made at run
    time. `MONITOR`: one that watches others.
    """

    DECLARED = "declared"
    HUMAN = "human"
    FOREIGN = "foreign"
    MORTAL = "mortal"
    DRONE = "drone"
    MONITOR = "monitor"


class AgentState(StrEnum):
    """The work of an agent; the first state that fits.

    `DISMISSED`: it was dismissed, or an agent above it, or has ended as its kind does. `PAUSED`:
    an order pauses it. `WAITING`: for an answer, see `AgentRecord.waiting_for`. `WORKING`: a
    process is at work on its request, or on the turn that it watches. `FAILED`: it could not
    fulfil its latest request. `DONE`: it has. `IDLE`: it was asked nothing yet, or its process has
    ended.
    """

    DISMISSED = "dismissed"
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
        kind: Its kind.
        role: The purpose of one that was made at run time, in its superior's words; empty for
            others.
        spawn_levels: How many levels of agents one that was made at run time may make below it; 0
            for others.
        alias: Its name for people; empty if it has none.
        subordinate_ids: Ids of its subordinates.
        thread_ids: Its own threads, one for each conversation.
        since: When it began, ISO 8601, UTC; empty if it has not.
        state: Its state.
        waiting_for: Whose answer it waits for: paths of agents, names of people, or `"the user"`.
        question: Its open question to a person, in one line, shortened; empty if there is none.
    """

    id: str
    path: AgentPath
    superior_id: str
    kind: AgentKind = AgentKind.DECLARED
    role: str = ""
    spawn_levels: int = 0
    alias: str = ""
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


class AgentLine(NamedTuple):
    """A line of a drawn registry: an agent, and what is drawn around it."""

    guide: str
    agent: AgentRecord
    hidden: int  # agents below it that are not drawn

    @property
    def name(self) -> str:
        """Its name, with its alias if it has one."""
        return _format_name(self.agent)

    @property
    def rest(self) -> str:
        """The note about agents that are not drawn; empty if all are."""
        return f" (and {self.hidden} below)" if self.hidden else ""


@dataclass(frozen=True)
class AgentRegistry:
    """The agents of one thread, on the branch on which it goes on.

    Attributes:
        agents: All agents, each before those below it.
    """

    agents: tuple[AgentRecord, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[str, int] = {}
        # A path comes before an id, and an id before an alias.
        for key in ("alias", "id", "path"):
            places |= {getattr(agent, key): place for place, agent in enumerate(self.agents)}
        places.pop("", None)
        object.__setattr__(self, "_places", places)

    def get(self, agent: str) -> AgentRecord:
        """Return an agent by its path, its id or its alias.

        Raises:
            UnknownPath: There is no such agent.
        """
        return self.agents[self._find_place(agent)]

    def subtree(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return an agent and all below it, superiors first."""
        return tuple(self._walk(self._find_place(agent)))

    def ancestors(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return the superiors of an agent, the root first."""
        record, superiors = self.get(agent), list[AgentRecord]()
        while record.superior_id:
            record = self.get(record.superior_id)
            superiors.append(record)
        return tuple(reversed(superiors))

    def siblings(self, agent: str) -> tuple[AgentRecord, ...]:
        """Return the other agents with the same superior."""
        record = self.get(agent)
        if not record.superior_id:
            return ()
        superior = self.get(record.superior_id)
        return tuple(self.get(id_) for id_ in superior.subordinate_ids if id_ != record.id)

    def format_breadcrumbs(self, agent: str) -> str:
        """Return the names from the root to an agent in one line."""
        records = (*self.ancestors(agent), self.get(agent))
        return " \u203a ".join(map(_format_name, records))

    def draw(self, agent: str | None = None, depth: int | None = None) -> str:
        """Return the agents as a tree of text, each with its state.

        Args:
            agent: The agent at the top, by its path, id or alias; `None` for the root.
            depth: Levels below it that are drawn; `None` for all.
        """
        lines = self.list_lines(agent, depth)
        return "\n".join(
            f"{line.guide}{line.name}: {describe_state(line.agent)}{line.rest}" for line in lines
        )

    def list_lines(self, agent: str | None = None, depth: int | None = None) -> list[AgentLine]:
        """Return the lines of a drawing, see `draw`."""
        subtree = self.subtree(agent or self.agents[0].path)
        lowest = None if depth is None else subtree[0].level + depth
        shown: list[AgentRecord] = []
        hidden: dict[str, int] = {}
        for record in subtree:
            if lowest is None or record.level <= lowest:
                shown.append(record)
            elif shown:
                hidden[shown[-1].id] = hidden.get(shown[-1].id, 0) + 1
        guides = draw_guides([record.level - subtree[0].level for record in shown])
        return [
            AgentLine(guide, record, hidden.get(record.id, 0))
            for guide, record in zip(guides, shown, strict=True)
        ]

    def __str__(self) -> str:
        return self.draw()

    def _find_place(self, agent: str) -> int:
        if not isinstance(agent, str) or (place := self._places.get(agent)) is None:
            name = agent if isinstance(agent, str) else shorten_repr(agent)
            raise UnknownPath(name, sorted(record.path for record in self.agents))
        return place

    def _walk(self, place: int) -> Iterator[AgentRecord]:
        top = self.agents[place]
        yield top
        for record in self.agents[place + 1 :]:
            if record.level <= top.level:
                return
            yield record


STATE_COLOURS = {
    AgentState.DISMISSED: "#d0d0d0",
    AgentState.PAUSED: "#e3d5f5",
    AgentState.WAITING: "#ffe9a8",
    AgentState.WORKING: "#b9dcff",
    AgentState.FAILED: "#f6bcbc",
    AgentState.DONE: "#bfe8c2",
    AgentState.IDLE: "#f4f4f4",
}
"""The colour of an agent's box, by its state."""


@dataclass(frozen=True, slots=True, repr=False)
class RegistryDrawing:
    """The drawing of a thread's agents with their states.

    A notebook shows it as Mermaid, in which each state has its colour; `print` shows it as text.
    """

    registry: AgentRegistry

    @property
    def text(self) -> str:
        """The agents as lines of text."""
        return self.registry.draw()

    @property
    def mermaid(self) -> str:
        """The agents as a Mermaid flowchart."""
        agents = self.registry.agents
        names = {agent.id: f"agent{number}" for number, agent in enumerate(agents)}
        lines = ["flowchart TD"]
        for agent in agents:
            label = f"<b>{_format_name(agent)}</b><br/>{escape_mermaid(describe_state(agent))}"
            lines.append(f'    {names[agent.id]}["{label}"]:::{agent.state}')
            if agent.superior_id:
                lines.append(f"    {names[agent.superior_id]} --> {names[agent.id]}")
        used = {agent.state for agent in agents}
        lines += [
            f"    classDef {state} fill:{colour},color:#000"
            for state, colour in STATE_COLOURS.items()
            if state in used
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid}\n```"


def describe_state(agent: AgentRecord) -> str:
    """Return what an agent is doing, in one line."""
    awaited = f" for {', '.join(agent.waiting_for)}" if agent.waiting_for else ""
    question = f": {join_printable(agent.question)}" if agent.question else ""
    return f"{agent.state}{awaited}{question}"


def _format_name(agent: AgentRecord) -> str:
    return f"{agent.name} ({agent.alias})" if agent.alias else agent.name
