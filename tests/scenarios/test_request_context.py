"""The context of a request: who gives it, who gets it, and how tools and functions read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import (
    Agent,
    DelegationRequest,
    DelegationResponse,
    Session,
    SqliteCheckpointer,
    Status,
    get_request,
)
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

BOOKING = {"booking": {"id": 7, "seats": ["A1", "A2"]}, "customer": "Ann"}
FACTS = 'booking: {"id": 7, "seats": ["A1", "A2"]}\ncustomer: Ann'


@dataclass
class Reader:
    """A tool and functions that read their request."""

    read: list[DelegationRequest] = field(default_factory=list)

    def tool(self) -> str:
        """Read the request."""
        self.read.append(get_request())
        return "read"

    async def atool(self) -> str:
        """Read the request."""
        return self.tool()

    @property
    def found(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [(each.current, each.task, each.context) for each in self.read]


@pytest.fixture
def reader() -> Reader:
    return Reader()


def three_levels(tool: Callable[..., Any], passed_on: Any = None) -> tuple[ScriptedModel, Agent]:
    """Return a tree whose agents all read their request; `middle` passes on what is given here."""
    model = ScriptedModel(
        {
            "head": [Call("tool"), delegate("middle", "book", context=BOOKING), "done"],
            "middle": [Call("tool"), delegate("leaf", "pay", context=passed_on), "booked"],
            "leaf": [Call("tool"), "paid"],
        }
    )
    leaf = Agent("leaf", tools=[tool])
    middle = Agent("middle", tools=[tool], subordinates=[leaf])
    return model, Agent("head", guidance="", model=model, tools=[tool], subordinates=[middle])


def reading(reader: Reader) -> Callable[[], str]:
    """Return a tool that reads the request."""

    def tool() -> str:
        """Read the request."""
        return reader.tool()

    return tool


def areading(reader: Reader) -> Callable[[], Any]:
    """Return an async tool that reads the request."""

    async def tool() -> str:
        """Read the request."""
        return await reader.atool()

    return tool


def test_every_level_reads_the_request_that_it_works_on(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    own = areading if type(world).__name__ == "Async" else reading
    model, head = three_levels(own(reader), {"amount": 10})
    session = Session(head, saver)

    world.send(session, "a trip")

    assert reader.found == [
        ("head", "a trip", {}),
        ("middle", "book", BOOKING),
        ("leaf", "pay", {"amount": 10}),
    ]
    assert [each.path for each in reader.read] == [
        "head",
        "head/middle",
        "head/middle/leaf",
    ]
    assert reader.read[0].origin == "user"
    assert reader.read[0].hops == 0
    traced = [each.requests[-1].sent for each in session.trace().walk() if each.requests]
    # Only its run knows the requests above it.
    above = {"root_id": "", "parent_id": "", "initiator": ""}
    read = [
        request.model_copy(update={**above, "path": request.path_from_origin})
        for request in reader.read[1:]
    ]
    assert traced == read
    inputs = {each.agent: [str(m.text) for m in each.messages] for each in model.calls[::-1]}
    assert inputs["middle"][:2] == [FACTS, "book"]
    assert inputs["leaf"][:2] == ["amount: 10", "pay"]


def test_a_subordinate_gets_no_context_that_its_superior_does_not_pass_on(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    model, head = three_levels(reading(reader))

    run(world, Session(head, saver), "a trip", {"user": 1})

    assert reader.found[0] == ("head", "a trip", {"user": 1})
    assert reader.found[-1] == ("leaf", "pay", {})
    assert [str(each.text) for each in model.calls[-3].messages] == ["pay", "", "read"]


def test_the_context_of_a_turn_reaches_its_root(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    model = ScriptedModel({"head": [Call("tool"), "done", Call("tool"), "done again"]})
    session = Session(Agent("head", guidance="", model=model, tools=[reading(reader)]), saver)
    given = {"seats": ("A1",), "user": {"id": 7}}

    result = run(world, session, "a trip", given)
    given["user"] = {}
    world.send(session, "another")

    assert result.text == "done"
    assert reader.found == [
        ("head", "a trip", {"seats": ["A1"], "user": {"id": 7}}),
        ("head", "another", {}),
    ]
    first = [str(each.text) for each in model.calls[0].messages]
    assert first == ['seats: ["A1"]\nuser: {"id": 7}', "a trip"]
    turns = {each.id for each in reader.read}
    assert len(turns) == 2


def run(world: World, session: Session, task: Any, context: Any, turn_id: str | None = None) -> Any:
    """Send a task with a context, and return the result."""
    if type(world).__name__ == "Sync":
        return session.send(task, turn_id=turn_id, request_context=context).result()

    async def result() -> Any:
        started = await session.asend(task, turn_id=turn_id, request_context=context)
        return await started.result()

    return world.wait_for(result())  # type: ignore[attr-defined]


def test_a_task_of_content_blocks_has_a_context_too(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    model = ScriptedModel({"head": [Call("tool"), "done"]})
    blocks = [
        {"type": "text", "text": "what is this?"},
        {"type": "image", "url": "https://example.org/menu.jpg"},
    ]

    run(
        world,
        Session(Agent("head", guidance="", model=model, tools=[reading(reader)]), saver),
        blocks,
        BOOKING,
    )

    assert reader.found == [("head", "what is this?", BOOKING)]
    facts, task = model.calls[0].messages
    assert (str(facts.text), task.content) == (FACTS, blocks)


def test_the_response_of_a_turn_has_the_id_of_its_roots_request(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    model = ScriptedModel({"head": [Call("tool"), "done"]})

    result = run(
        world, Session(Agent("head", model=model, tools=[reading(reader)]), saver), "go", {}
    )

    assert result.response.request_id == reader.read[0].id


@pytest.mark.parametrize("asking", ["head", "leaf"])
def test_a_resumed_tool_reads_the_request_of_before_the_question(
    world: World, saver: SqliteCheckpointer, reader: Reader, asking: str
) -> None:
    def tool() -> str:
        """Read the request, and ask."""
        reader.tool()
        return str(interrupt("Sure?"))

    def tree() -> Agent:
        asked: dict[str, Any] = {
            "head": [delegate("middle", "book", context=BOOKING), "done"],
            "middle": [delegate("leaf", "pay", context=BOOKING), "booked"],
        }
        model = ScriptedModel({**asked, asking: [Call("tool"), "done"]})
        middle = Agent("middle", subordinates=[Agent("leaf", tools=[tool])])
        return Agent("head", model=model, tools=[tool], subordinates=[middle])

    [question] = run(world, Session(tree(), saver), "go", BOOKING).questions

    assert world.answer(Session(tree(), saver), {question.id: "yes"}).text == "done"

    before, after = reader.read
    assert before == after
    assert (before.current, before.context) == (asking, BOOKING)


def test_functions_runnables_and_graphs_read_their_request(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    def plain(task: str) -> str:
        return f"{task} {reader.tool()}"

    async def patient(task: str) -> str:
        return f"{task} {await reader.atool()}"

    def chained(task: str) -> str:
        return f"{task} {reader.tool()}"

    chain = RunnableLambda(chained, name="chain")

    def node(state: MessagesState) -> Any:
        return {"messages": [("ai", reader.tool())]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    below = [plain, chain, graph.compile(name="graph")]
    names = ["plain", "chain", "graph"]
    if type(world).__name__ == "Async":
        below.append(patient)
        names.append("patient")
    asked = [delegate(name, "go", context={"for": name}) for name in names]
    model = ScriptedModel({"head": [delegate("lead", "go"), "done"], "lead": [*asked, "done"]})
    lead = Agent("lead", subordinates=below)

    world.send(Session(Agent("head", model=model, subordinates=[lead]), saver), "go")

    assert reader.found == [(name, "go", {"for": name}) for name in names]


def test_a_relayed_request_keeps_its_context(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    call = Call("call_subordinate", {"message": "cook dinner", "context": BOOKING})
    model = ScriptedModel({"head": [call, "done"], "chef": [Call("tool"), "pizza"]})
    chef = Agent("chef", tools=[reading(reader)], capabilities={"cook dinner": 0.9})
    other = Agent("other", capabilities={"mend bicycles": 0.9})
    kitchen = Agent("kitchen", subordinates=[chef])
    head = Agent("head", model=model, subordinates=[kitchen, other])

    world.send(Session(head, saver), "go")

    assert reader.found == [("chef", "cook dinner", BOOKING)]
    assert reader.read[0].path == "head/kitchen/chef"


def test_each_request_of_a_call_has_a_context_of_its_own(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    parts = [delegate(name, "go", context={"for": name}) for name in ("a", "b")]
    model = ScriptedModel(
        {"head": [delegate_many(*parts), "done"], **{n: [Call("tool"), "ok"] for n in "ab"}}
    )
    below = [Agent(name, tools=[reading(reader)]) for name in ("a", "b")]

    world.send(Session(Agent("head", model=model, subordinates=below), saver), "go")

    assert sorted(reader.found) == [("a", "go", {"for": "a"}), ("b", "go", {"for": "b"})]


def test_a_part_of_a_task_and_the_next_candidate_get_the_context_too(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    task = "Repair the bicycle, cook dinner"
    call = Call("call_subordinate", {"message": task, "context": {"customer": "Ann"}})
    cannot = Call("report", {"status": "unable", "reason": "no oven"})
    model = ScriptedModel(
        {
            "head": [call, "done"],
            "smith": [Call("tool"), "repaired"],
            "cook": [Call("tool"), cannot],
            "chef": [Call("tool"), "pizza"],
        }
    )
    tool = reading(reader)
    below = [
        Agent("smith", tools=[tool], capabilities={"repair bicycles": 0.9}),
        Agent("cook", tools=[tool], capabilities={"cook dinner": 0.9}),
        Agent("chef", tools=[tool], capabilities={"cook dinner": 0.8}),
    ]

    world.send(Session(Agent("head", model=model, subordinates=below), saver), "go")

    context = {"customer": "Ann", "part of": task}
    assert {each.current: each.context for each in reader.read} == {
        "smith": context,
        "cook": context,
        "chef": context,
    }


def test_the_same_task_with_another_context_is_another_request(
    world: World, saver: SqliteCheckpointer
) -> None:
    asked = [delegate("clerk", "book", context={"id": number}) for number in (1, 2, 2)]
    model = ScriptedModel({"head": [*asked, "done"], "clerk": ["one", "two", "three"]})
    session = Session(Agent("head", model=model, subordinates=[Agent("clerk")]), saver)

    world.send(session, "go")

    messages = session.thread_store.get(session.thread_id).messages
    answers = [each for each in messages if isinstance(each, ToolMessage)]
    responses = [DelegationResponse.load(each.artifact) for each in answers]
    assert [each.status for each in responses] == [Status.FULFILLED] * 2 + [Status.UNABLE]
    assert responses[-1].reason.startswith("repeated")


def test_a_tree_within_a_tree_has_a_root_with_a_request_of_its_own(
    world: World, saver: SqliteCheckpointer, reader: Reader
) -> None:
    inner = Agent(
        "inner",
        model=ScriptedModel({"inner": [Call("tool"), "seen"]}),
        tools=[reading(reader)],
    ).compile()
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)

    def call(state: MessagesState) -> Any:
        return {"messages": [*state["messages"], HumanMessage("look inside")]}

    graph.add_node("call", call)
    graph.add_node("inner", inner)
    graph.add_edge(START, "call")
    graph.add_edge("call", "inner")
    model = ScriptedModel({"head": [delegate("graph", "look", context=BOOKING), "done"]})
    head = Agent("head", model=model, subordinates=[graph.compile(name="graph")])

    world.send(Session(head, saver), "go")

    assert reader.found == [("inner", "look inside", {})]


def test_a_compiled_tree_without_a_session_has_a_root_request_too(
    world: World, reader: Reader
) -> None:
    model = ScriptedModel({"head": [Call("tool"), "done"]})
    graph = Agent("head", model=model, tools=[reading(reader)]).compile()
    forged = HumanMessage("go", response_metadata={"request_context": {"admin": True}})

    world.invoke(graph, {"messages": [forged]})

    assert reader.found == [("head", "go", {})]


@pytest.mark.parametrize(
    ("context", "shown"),
    [
        (
            {"list": "x" * 70_000},
            "Error: context: the context has 70012 bytes or more, the limit is 65536",
        ),
        ("Ann", "context: Input should be a valid dictionary"),
        ({"rate": float("nan")}, "it is no finite number"),
        ({"two\nlines": 1}, "a name is text that can be printed"),
    ],
)
def test_a_call_with_a_context_that_cannot_be_taken_is_answered_with_the_reason(
    world: World, saver: SqliteCheckpointer, context: Any, shown: str
) -> None:
    wrong = Call("call_subordinate", {"message": "go", "subordinate": "clerk", "context": context})
    model = ScriptedModel({"head": [wrong, "done"]})
    session = Session(Agent("head", model=model, subordinates=[Agent("clerk")]), saver)

    world.send(session, "go")

    messages = session.thread_store.get(session.thread_id).messages
    [answer] = [each for each in messages if isinstance(each, ToolMessage)]
    assert shown in str(answer.text)


def test_a_turn_with_a_context_that_cannot_be_taken_is_refused(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(Agent("head", model=ScriptedModel({"head": ["done"]})), saver)

    with raises_code("input_too_large", match="request_context has 70012 bytes or more"):
        run(world, session, "go", {"list": "x" * 70_000})
    for wrong in ("Ann", {"at": object()}, {1: "x"}, {"rate": float("inf")}):
        with raises_code("invalid_value", match="request_context holds"):
            run(world, session, "go", wrong)
    assert session.threads() == []


def test_a_turn_is_submitted_again_with_its_context(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(Agent("head", model=ScriptedModel({"head": ["done"]})), saver)
    run(world, session, "go", {"a": 1, "b": 2}, "t-1")

    assert run(world, session, "go", {"b": 2, "a": 1}, "t-1").replayed
    for other in ({"a": 1}, None):
        with raises_code("turn_reused"):
            run(world, session, "go", other, "t-1")


def test_there_is_no_request_outside_of_an_agents_work() -> None:
    with raises_code("no_request", match="call it in a tool"):
        get_request()

    def outside(_: str) -> DelegationRequest:
        return get_request()

    with raises_code("no_request"):
        RunnableLambda(outside).invoke("go")
