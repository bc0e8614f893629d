"""Teams to plan for, and a play in which planners at all levels talk to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from echelons.offline.planner import OfflinePlanner
from echelons.tree.members import RosterEntry, render_roster

Schema = dict[str, Any]


def _function(name: str, description: str, properties: Schema, *required: str) -> Schema:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def _delegating(entries: Sequence[RosterEntry]) -> Schema:
    whom = {"type": "string", "enum": [entry.name for entry in entries]}
    return _function(
        "call_subordinate",
        f"Hand a task to a subordinate:\n{render_roster(entries)}",
        {"message": {"type": "string"}, "subordinate": whom, "reset": {"type": "boolean"}},
        "message",
        "subordinate",
    )


def _reporting() -> Schema:
    statuses = ["fulfilled", "partial", "unable", "needs_input"]
    return _function(
        "report",
        "End the turn with anything but a plain answer.",
        {
            "status": {"type": "string", "enum": statuses},
            "result": {"type": "string"},
            "confidence": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "reason": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "status",
        "result",
    )


@dataclass
class Actor:
    """An agent of the play, with a planner for a mind."""

    name: str
    description: str
    capabilities: dict[str, float] = field(default_factory=dict)
    tools: list[BaseTool] = field(default_factory=list)
    below: list[Actor] = field(default_factory=list)

    @property
    def entry(self) -> RosterEntry:
        able = dict(self.capabilities)
        for actor in self.below:
            for name, confidence in actor.entry.capabilities.items():
                able[name] = max(confidence, able.get(name, 0.0))
        return RosterEntry(self.name, self.description, able)

    def schemas(self, *, root: bool) -> list[Schema]:
        schemas = [convert_to_openai_tool(each) for each in self.tools]
        if self.below:
            schemas.append(_delegating([actor.entry for actor in self.below]))
        return schemas if root else [*schemas, _reporting()]


@dataclass
class Play:
    """One conversation with a tree of actors.

    Attributes:
        head: The root.
        broken: Names of actors and tools that fail.
        calls: Path, tool and arguments of every call, reports left out.
        reports: What each actor reported, by its path.
    """

    head: Actor
    broken: frozenset[str] = frozenset()
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    threads: dict[str, list[BaseMessage]] = field(default_factory=dict)

    def say(self, text: str) -> str:
        """What the head answers."""
        self.calls.clear()
        self.reports.clear()
        return str(self._act(self.head, "", text)["result"])

    @property
    def asked(self) -> list[str]:
        """Who was asked, in order."""
        return [args["subordinate"] for _, name, args in self.calls if name == "call_subordinate"]

    def used(self, name: str) -> list[dict[str, Any]]:
        """Arguments of each call of a tool."""
        return [args for _, called, args in self.calls if called == name]

    def _act(self, actor: Actor, above: str, text: str) -> dict[str, Any]:
        path = f"{above}/{actor.name}"
        thread = self.threads.setdefault(path, [])
        thread.append(HumanMessage(text))
        model = OfflinePlanner().bind_tools(actor.schemas(root=not above))
        for _ in range(5):
            message = model.invoke(thread)
            thread.append(message)
            if not message.tool_calls:
                return {"status": "fulfilled", "result": message.text, "agent": actor.name}
            for call in message.tool_calls:
                if call["name"] == "report":
                    self.reports[path] = call["args"]
                    return {"agent": actor.name, **call["args"]}
                self.calls.append((path, call["name"], call["args"]))
                thread.append(self._answered(actor, path, dict(call)))
        raise AssertionError(f"{path} goes round in circles")

    def _answered(self, actor: Actor, path: str, call: dict[str, Any]) -> ToolMessage:
        if call["name"] != "call_subordinate":
            if call["name"] in self.broken:
                return ToolMessage("out of order", tool_call_id=call["id"], status="error")
            used = next(each for each in actor.tools if each.name == call["name"])
            answer = used.invoke(call)
            assert isinstance(answer, ToolMessage)
            return answer
        below = next(each for each in actor.below if each.name == call["args"]["subordinate"])
        response = (
            {"status": "unable", "agent": below.name, "reason": "out of order", "result": ""}
            if below.name in self.broken
            else self._act(below, path, call["args"]["message"])
        )
        failed = response["status"] == "unable"
        return ToolMessage(
            response["result"] or response["reason"],
            tool_call_id=call["id"],
            artifact=response,
            status="error" if failed else "success",
        )


@tool
def find_flights(destination: str, origin: str | None = None, date: str | None = None) -> str:
    """Find flights to a city."""
    return f"flights to {destination} from {origin} on {date}"


@tool
def find_hotels(city: str, nights: int | None = None, guests: int | None = None) -> str:
    """Find hotels with free rooms in a city."""
    return f"hotels in {city} for {nights} nights"


@tool
def find_food(place: str, dish: str | None = None) -> str:
    """Find restaurants and markets."""
    return f"food in {place}: {dish}"


@tool
def reserve_table(restaurant: str, when: str, people: int) -> str:
    """Ask a human to reserve a table."""
    return f"reserved at {restaurant} {when} for {people}"


@tool
def find_tours(place: str, language: Literal["English", "Italian"] | None = None) -> str:
    """Find guided walks and museums."""
    return f"tours in {place} in {language}"


@tool
def find_events(place: str, when: str | None = None) -> str:
    """Find what is on."""
    return f"events in {place} {when}"


@tool(response_format="content_and_artifact")
def search_report(question: str) -> tuple[str, dict[str, Any]]:
    """Search the yearly report."""
    return f"> grew by 4 percent\n— report.md:12\n({question})", {"confidence": 0.62}


def _can(confidence: float, *abilities: str) -> dict[str, float]:
    return dict.fromkeys(abilities, confidence)


def travel_team() -> Actor:
    """A team like the one that people will try first."""
    trip = {"trip": 0.6}
    flights = Actor(
        "flights",
        "Knows the airlines",
        {**_can(0.9, "flights", "airports", "fly", "plane"), **trip},
        [find_flights],
    )
    hotels = Actor(
        "hotels",
        "Knows where to spend the night",
        {**_can(0.9, "hotels", "rooms", "stay", "sleep", "accommodation"), **trip},
        [find_hotels],
    )
    food = _can(0.9, "food", "dining", "restaurants", "pasta", "dinner", "wine tasting", "table")
    below = [
        Actor("restaurants", "Knows kitchens", food, [find_food, reserve_table]),
        Actor("tours", "Knows the sights", _can(0.9, "tours", "museums", "sights"), [find_tours]),
        Actor(
            "events",
            "Knows the programmes",
            _can(0.9, "concerts", "opera", "shows", "festivals"),
            [find_events],
        ),
    ]
    experiences = Actor("experiences", "Plans the days", _can(0.8, "activities"), below=below)
    return Actor("head", "Plans trips", below=[flights, hotels, experiences])


@pytest.fixture
def travel() -> Play:
    """A conversation with the travel team."""
    return Play(travel_team())


@pytest.fixture
def play() -> Callable[..., Play]:
    """Makes a conversation with any actor."""
    return Play


@pytest.fixture
def actor() -> type[Actor]:
    """The class of actors, for teams of a test's own."""
    return Actor


@pytest.fixture
def report_tool() -> BaseTool:
    """A tool that is sure of its answers to some degree."""
    return search_report


@pytest.fixture
def delegating() -> Callable[[Sequence[RosterEntry]], Schema]:
    """Makes the schema of ``call_subordinate``."""
    return _delegating


@pytest.fixture
def function() -> Callable[..., Schema]:
    """Makes the schema of any tool."""
    return _function


@pytest.fixture
def reporting() -> Schema:
    """The schema of ``report``."""
    return _reporting()
