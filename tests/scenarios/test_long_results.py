"""A model is shown a part of a long result, and reads on in it; everybody else gets all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from echelons import Agent, Contract, Human, Limits, Session, SqliteCheckpointer
from echelons.memory import Memory
from echelons.middleware import DelegationMiddleware
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

CUT = re.compile(r'\[cut: the first (\d+) of (\d+) characters; read_result\(id="(\w+)", offset=')
PAGE = re.compile(r"\n\[characters (\d+) to (\d+) of (\d+)[^\]]*\]$")
LINES = "".join(f"line {number} of the report\n" for number in range(20_000))
SMALL = Limits(result_tokens=1_000)


@tool
def fetch(page: str) -> str:
    """Fetch a page."""
    return f"{page}\n{LINES}"


def read_on(messages: Sequence[BaseMessage]) -> Any:
    """Fetch a page, and read on in it until its end."""
    last = messages[-1]
    if isinstance(last, HumanMessage):
        return Call("fetch", {"page": "first"}) if "page" in last.text else "fine"
    match = re.search(r'read_result\(id="(\w+)", offset=(\d+)\)', last.text)
    if match:
        return Call("read_result", {"id": match[1], "offset": int(match[2])})
    return "read"


def find_results(model: ScriptedModel, call: int = -1) -> list[str]:
    shown = model.calls[call].messages
    return [without_marks(each.text) for each in shown if each.type == "tool"]


def test_model_reads_long_result_to_its_end(world: World) -> None:
    model = ScriptedModel(read_on)
    agent = Agent("head", model=model, tools=[fetch], limits=Limits(result_tokens=20_000))
    with Session(agent, ":memory:") as session:
        assert world.send(session, "the page").text == "read"

    first, *pages = find_results(model)
    parts = [first[: int(CUT.search(first)[1])]]  # type: ignore[index]
    parts += [PAGE.sub("", each) for each in pages]
    assert "".join(parts) == f"first\n{LINES}"
    assert len(pages) == len(LINES) // 60_000
    assert pages[-1].endswith(": the end]")
    assert all(len(each.encode()) <= 20_000 * 3 + 200 for each in (first, *pages))


def test_read_result_is_offered_from_first_long_result_to_end_of_thread(tmp_path: Path) -> None:
    tools: list[bool] = []
    for task in ("hello", "the page", "hello"):
        model = ScriptedModel(lambda m: "fine" if m[-1].type == "tool" else read_on(m))
        with Session(Agent("head", model=model, tools=[fetch]), tmp_path / "t.db", thread="t") as s:
            s.send(task).result()
        tools += ["read_result" in each.tools for each in model.calls]

    assert tools == [False, False, True, True]


def test_shortened_results_are_same_bytes_in_each_request_and_process(tmp_path: Path) -> None:
    requests: list[list[str]] = []
    for task in ("the page", "hello", "the page"):
        model = ScriptedModel(read_on)
        agent = Agent("head", model=model, tools=[fetch], limits=Limits(result_tokens=60_000))
        with Session(agent, tmp_path / "t.db", thread="t") as session:
            session.send(task).result()
        requests += [[each.model_dump_json() for each in call.messages] for call in model.calls]

    for before, after in pairwise(requests):
        assert after[: len(before)] == before


def test_results_of_one_message_have_twice_the_limit_and_largest_is_cut_first(
    world: World,
) -> None:
    @tool
    def load(size: int) -> str:
        """Load."""
        return "x" * size

    sizes = [2_900, 600, 900, 9_000, 450]
    calls = [Call("load", {"size": each}) for each in sizes]
    model = ScriptedModel(lambda messages: calls if messages[-1].text == "go" else "done")
    with Session(Agent("head", model=model, tools=[load], limits=SMALL), ":memory:") as session:
        world.send(session, "go")
        world.send(session, "on")

    assert find_results(model, -1) == find_results(model, -2)
    shown = [len(each) for each in find_results(model)]
    assert [place for place, size in enumerate(sizes) if shown[place] != size] == [0, 3]
    assert shown[0] == pytest.approx(shown[3], abs=30)
    assert 5_500 < sum(shown) <= 2 * 1_000 * 3


def test_pages_that_one_message_reads_share_their_room(world: World) -> None:
    def script(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        if isinstance(last, HumanMessage):
            return Call("fetch", {"page": "first"})
        if match := CUT.search(last.text):
            return [Call("read_result", {"id": match[3], "offset": n * 2_000}) for n in range(5)]
        return "read"

    model = ScriptedModel(script)
    with Session(Agent("head", model=model, tools=[fetch], limits=SMALL), ":memory:") as session:
        world.send(session, "the page")

    _, *pages = find_results(model)
    assert len(pages) == 5
    assert sum(map(len, pages)) < 2 * 1_000 * 3 + 5 * 120
    for number, page in enumerate(pages):
        begin = number * 2_000
        text = PAGE.sub("", page)
        assert f"first\n{LINES}"[begin:].startswith(text)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"id": "feedbeef", "offset": 0}, "no result of this conversation"),
        ({"id": "", "offset": 0}, "id"),
        ({"id": "THIS", "offset": 10**9}, "characters; give a lower number"),
        ({"id": "THIS", "offset": -1}, "offset"),
    ],
)
def test_result_that_cannot_be_read_is_refused(arguments: Any, error: str) -> None:
    def script(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        if isinstance(last, HumanMessage):
            return Call("fetch", {"page": "first"})
        if match := CUT.search(last.text):
            known = {**arguments, "id": arguments["id"].replace("THIS", match[3])}
            return Call("read_result", known)
        return "over"

    model = ScriptedModel(script)
    with Session(Agent("head", model=model, tools=[fetch], limits=SMALL), ":memory:") as session:
        assert session.send("the page").result().text == "over"

    assert error in find_results(model)[-1]
    assert find_results(model)[-1].startswith("Error: ")


def test_agent_does_not_read_results_of_another_thread(world: World) -> None:
    ids: list[str] = []

    def leaf(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], HumanMessage):
            return Call("fetch", {"page": "secret"})
        ids.append(CUT.search(messages[-1].text)[3])  # type: ignore[index]
        return "seen"

    answers = iter([delegate("leaf", "go"), None, "over"])
    model = ScriptedModel(
        {
            "leaf": leaf,
            "head": lambda m: next(answers) or Call("read_result", {"id": ids[0], "offset": 0}),
        }
    )
    agent = Agent("head", model=model, subordinates=[Agent("leaf", tools=[fetch])], limits=SMALL)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "over"

    assert "no result of this conversation" in find_results(model)[-1]


def test_python_hooks_and_thread_get_whole_result(world: World) -> None:
    seen: list[int] = []

    class Watch(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(max(len(each.text) for each in request.messages))
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(max(len(each.text) for each in request.messages))
            return await handler(request)

    model = ScriptedModel([Call("fetch", {"page": "p"}), "done"])
    agent = Agent("head", model=model, tools=[fetch], middleware=[Watch()], limits=SMALL)
    with Session(agent, ":memory:") as session:
        world.send(session, "the page")
        stored = session.thread_store.get(session.thread_id).messages

    assert max(len(str(each.text)) for each in stored) == len(LINES) + 2
    assert seen == [len("the page"), len(LINES) + 2]
    assert CUT.search(find_results(model)[-1])
    assert "read_result" in model.calls[-1].tools


def test_result_that_is_returned_directly_is_whole(world: World) -> None:
    @tool(return_direct=True)
    def load() -> str:
        """Load."""
        return LINES

    model = ScriptedModel([Call("load")])
    with Session(Agent("head", model=model, tools=[load], limits=SMALL), ":memory:") as session:
        assert world.send(session, "go").text == LINES


def test_answer_of_subordinate_is_shortened_for_superiors_model_alone(world: World) -> None:
    def work(task: str) -> str:
        """Work."""
        return LINES

    model = ScriptedModel([delegate("work", "go"), "done"])
    agent = Agent("head", model=model, subordinates=[work], limits=SMALL)
    with Session(agent, ":memory:") as session:
        response = world.send(session, "go").response
        answer = next(
            each
            for each in session.thread_store.get(session.thread_id).messages
            if isinstance(each, ToolMessage)
        )

    assert CUT.search(find_results(model)[-1])
    assert answer.text == LINES
    assert answer.artifact["result"] == LINES
    assert response is not None
    assert [each.agent for each in response.subordinate_responses] == ["work"]


def test_thread_of_earlier_version_heals(saver: SqliteCheckpointer) -> None:
    stored = [
        HumanMessage("go", id="1"),
        AIMessage("", id="2", tool_calls=[{"name": "fetch", "args": {"page": "p"}, "id": "c"}]),
        ToolMessage(LINES * 10, id="3", tool_call_id="c", name="fetch"),
        AIMessage("", id="4", tool_calls=[{"name": "fetch", "args": {"page": "p"}, "id": "d"}]),
        ToolMessage(
            [
                {"type": "image", "base64": "none!", "mime_type": "image/png"},
                {"type": "text", "text": "a"},
            ],
            id="5",
            tool_call_id="d",
            name="fetch",
        ),
        AIMessage("over", id="6"),
    ]
    model = ScriptedModel(["fine"])
    graph = Agent("head", model=model, tools=[fetch], limits=SMALL).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.update_state(config, {"messages": stored})

    graph.invoke({"messages": [("user", "hello")]}, config)

    shown = [each for each in model.calls[-1].messages if each.type == "tool"]
    assert len(shown[0].text) <= 3_000
    assert shown[1].content == [
        {
            "type": "text",
            "text": "[left out: a block of type image, which has data that are no base64]",
        },
        {"type": "text", "text": "a"},
    ]


def test_blocks_of_long_result_are_cut_and_pictures_kept(world: World) -> None:
    picture = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}

    @tool
    def look() -> list[Any]:
        """Look."""
        return [{"type": "text", "text": LINES}, picture, {"type": "json", "json": [LINES]}]

    def script(messages: Sequence[BaseMessage]) -> Any:
        return "done" if any(each.type == "tool" for each in messages) else Call("look")

    model = ScriptedModel(script)
    with Session(Agent("head", model=model, tools=[look], limits=SMALL), ":memory:") as session:
        world.send(session, "go")

    shown = model.calls[-1].messages
    [result] = [each for each in shown if each.type == "tool"]
    length = len(LINES) + 1 + len(json.dumps({"type": "json", "json": [LINES]}))
    assert f"of {length} characters" in str(result.text)
    assert "aGVsbG8=" in str([each.content for each in shown])


def test_model_of_function_and_middle_agent_read_on(world: World) -> None:
    model = ScriptedModel(
        {
            "head": lambda m: delegate("middle", "the page") if m[-1].type == "human" else "done",
            "middle": read_on,
        }
    )
    middle = Agent("middle", tools=[fetch], model=lambda state: model)
    agent = Agent("head", model=model, subordinates=[middle], limits=Limits(result_tokens=50_000))
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "done"

    reading = [each for each in model.calls if each.agent == "middle"]
    assert len(reading) == 5
    assert ["read_result" in each.tools for each in reading] == [False, True, True, True, True]


def test_no_limit_shows_all(world: World) -> None:
    model = ScriptedModel([Call("fetch", {"page": "p"}), "done"])
    agent = Agent("head", model=model, tools=[fetch], limits=Limits(result_tokens=None))
    with Session(agent, ":memory:") as session:
        world.send(session, "go")

    assert find_results(model) == [f"p\n{LINES}"]


@pytest.mark.parametrize("tokens", [1_000, 25_000])
@pytest.mark.parametrize("cuts", ["memory", "refusal"])
def test_result_that_is_cut_further_keeps_its_id(world: World, cuts: str, tokens: int) -> None:
    def script(messages: Sequence[BaseMessage]) -> Any:
        size = sum(len(str(each.content)) for each in messages)
        if cuts == "refusal" and size > 9_000:
            raise ValueError("400 context_length_exceeded")
        if messages[-1].text == "the page":
            return Call("fetch", {"page": "first"})
        return "fine"

    model = ScriptedModel(script)
    memory = Memory(budget=3_000, summarizer="extractive") if cuts == "memory" else None
    limits = Limits(result_tokens=tokens)
    agent = Agent("head", model=model, tools=[fetch], memory=memory, limits=limits)
    with Session(agent, ":memory:") as session:
        for task in ("the page", "hello", "hello"):
            assert world.send(session, task).text == "fine"

    accepted = [each for each in model.calls[1:] if sum(map(measure, each.messages)) <= 15_000]
    notes = [
        CUT.search(str(m.text)) for each in accepted for m in each.messages if m.type == "tool"
    ]
    assert len(notes) == len(accepted) >= 3
    assert len({note and note[3] for note in notes}) == 1
    assert {note and note[2] for note in notes} == {str(len(f"first\n{LINES}"))}
    assert all("read_result" in each.tools for each in accepted)


def measure(message: BaseMessage) -> int:
    return len(str(message.content))


def test_results_within_the_budget_of_a_memory_are_whole_for_hooks(world: World) -> None:
    seen: list[int] = []

    class Watch(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(max(map(measure, request.messages)))
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(max(map(measure, request.messages)))
            return await handler(request)

    model = ScriptedModel([Call("fetch", {"page": "p"}), "done"])
    memory = Memory(budget=3_000, summarizer="extractive")
    agent = Agent(
        "head", model=model, tools=[fetch], middleware=[Watch()], limits=SMALL, memory=memory
    )
    with Session(agent, ":memory:") as session:
        world.send(session, "the page")

    assert seen[-1] == len(LINES) + 2
    assert CUT.search(find_results(model)[-1])


def test_value_of_a_contract_is_whole(world: World) -> None:
    class Report(BaseModel):
        text: str

    seen: list[Any] = []

    class Reader(DelegationMiddleware):
        def wrap_delegation(self, request: Any, handler: Any) -> Any:
            response = handler(request)
            seen.append(response.value)
            return response

        async def awrap_delegation(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            seen.append(response.value)
            return response

    whole = Report(text=LINES[:20_000])
    leaf = Agent("leaf", contract=Contract(output=Report))
    model = ScriptedModel(
        {
            "head": lambda m: delegate("leaf", "go") if m[-1].type == "human" else to_json(whole),
            "leaf": [to_json(whole)],
        }
    )
    agent = Agent(
        "head",
        model=model,
        subordinates=[leaf],
        middleware=[Reader()],
        contract=Contract(output=Report),
        limits=SMALL,
    )
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")

    assert CUT.search(find_results(model)[-1])
    assert (seen, result.value) == ([whole], whole)


def to_json(value: BaseModel) -> str:
    return value.model_dump_json()


def test_people_read_and_are_read_whole_but_by_a_model(world: World) -> None:
    model = ScriptedModel([delegate("ann", LINES), "done"])
    agent = Agent("head", model=model, subordinates=[Human("ann")], limits=SMALL)
    with Session(agent, ":memory:") as session:
        [question] = world.send(session, "go").questions
        assert question.value == LINES
        result = world.answer(session, {question.id: f"signed\n{LINES}"})
        stored = session.thread_store.get(session.thread_id).messages

    assert (result.text, result.response and result.response.subordinate_responses[0].agent) == (
        "done",
        "ann",
    )
    assert [str(each.text) for each in stored if each.type == "tool"] == [f"signed\n{LINES}"]
    assert CUT.search(find_results(model)[-1])
