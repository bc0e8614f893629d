"""How a reply ended decides what its superior gets, at the third level and at the root."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, SecretStr

from echelons import Agent, Contract, Permissions, Session, Spawn
from echelons.delegation.request import DelegationResponse
from echelons.models.replies import MAX_PAUSES
from echelons.testing import Call, OpenAIServer, Reply, ScriptedModel, delegate, report
from tests.fork_server import REPOSITORY, ForkServer
from tests.scenarios.drivers.reporting import THREAD, build_tree, pass_on
from tests.told_lines import get_last, without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

Script = Callable[[Sequence[BaseMessage]], Any]
LOOK = Reply("I look around.", [Call("look")])
ROUTED = ("call_subordinate", {"message": "cook dinner"})


def look() -> str:
    """Look."""
    return "seen"


def pay() -> str:
    """Pay the bill."""
    raise ValueError("the card was refused")


def ask_leaf(
    world: World, script: Any, tools: Sequence[Any] = (look, pay)
) -> tuple[str, DelegationResponse, ScriptedModel]:
    """Return the root's text, the response of the leaf at level 3, and the model."""
    model = ScriptedModel({"head": pass_on("mid"), "mid": pass_on("leaf"), "leaf": script})
    leaf = Agent("leaf", tools=[*tools])
    tree = Agent("head", model=model, subordinates=[Agent("mid", subordinates=[leaf])])
    with Session(tree, ":memory:") as session:
        text = world.send(session, "go").text
        [mid] = session.trace().subordinates
        response = mid.subordinates[0].requests[0].response
    assert response is not None
    return text, response, model


def read_calls(model: ScriptedModel, agent: str = "leaf") -> list[Any]:
    return [call for call in model.calls if call.agent == agent]


def cut(text: str) -> Reply:
    return Reply(text, finish_reason="length")


def test_reply_cut_at_the_length_limit_may_be_finished_once(world: World) -> None:
    text, response, model = ask_leaf(world, [cut("One, two, "), "three."])

    assert (response.status, response.result, response.end) == (
        "fulfilled",
        "One, two, three.",
        "",
    )
    assert "cut off by the length limit" in read_calls(model)[1].messages[-1].text
    assert text == "One, two, three."


def test_reply_cut_twice_is_partial_with_all_its_text(world: World) -> None:
    _, response, model = ask_leaf(world, [cut("One, two, "), cut("three, ")])

    assert (response.status, response.result, response.end) == (
        "partial",
        "One, two, three, ",
        "length",
    )
    assert response.reason == "length: finish_reason: length"
    assert len(read_calls(model)) == 2


def test_next_request_may_finish_a_cut_reply_again(world: World) -> None:
    script: list[Any] = [cut("a "), cut("b ")] * 2

    def play(messages: Sequence[BaseMessage]) -> Any:
        return script.pop(0)

    model = ScriptedModel({"head": play})
    with Session(Agent("head", model=model), ":memory:") as session:
        for _ in range(2):
            result = world.send(session, "go")
            assert (result.status, result.text) == ("limited", "a b ")
            assert result.reason == "length: finish_reason: length"


def test_filtered_reply_is_partial_with_its_reason(world: World) -> None:
    _, response, _ = ask_leaf(world, [Reply("Half", finish_reason="content_filter")])

    assert (response.status, response.result, response.end) == ("partial", "Half", "filtered")
    assert response.reason == "filtered: finish_reason: content_filter"
    assert not response.failed


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", additional_kwargs={"refusal": "I give no medical advice."}),
        AIMessage([{"type": "refusal", "refusal": "I give no medical advice."}]),
        AIMessage("I give no medical advice.", response_metadata={"stop_reason": "refusal"}),
    ],
)
def test_refusal_is_unable_with_the_words_of_the_model(world: World, message: AIMessage) -> None:
    text, response, _ = ask_leaf(world, lambda _: message)

    assert (response.status, response.end) == ("unable", "refused")
    assert not response.failed
    assert "I give no medical advice." in text


def build_cooks(reply: AIMessage, second: ScriptedModel | None) -> tuple[Agent, list[str]]:
    tried: list[str] = []

    def first(messages: Sequence[BaseMessage]) -> Any:
        tried.append("first")
        return reply

    def other(messages: Sequence[BaseMessage]) -> Any:
        tried.append("second")
        return "cooked"

    def head(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "human":
            return Call("call_subordinate", {"message": "cook dinner"})
        return str(messages[-1].text)

    model = ScriptedModel({"head": head, "first": first, "second": other})
    cooks = [
        Agent("first", capabilities={"cook": 0.9}),
        Agent("second", model=second, capabilities={"cook": 0.8}),
    ]
    return Agent("head", model=model, subordinates=cooks), tried


@pytest.mark.parametrize(
    "reply",
    [
        AIMessage("", additional_kwargs={"refusal": "No."}),
        AIMessage("Half", response_metadata={"finish_reason": "content_filter"}),
    ],
)
def test_no_candidate_with_the_same_model_is_tried(world: World, reply: AIMessage) -> None:
    tree, tried = build_cooks(reply, None)
    with Session(tree, ":memory:") as session:
        for _ in range(4):
            world.send(session, "go")
        # The circuit of an agent opens after three failures.
        assert tried == ["first"] * 4


def test_candidate_with_another_model_is_tried_after_a_refusal(world: World) -> None:
    another = ScriptedModel({"second": lambda _: "cooked"})
    tree, tried = build_cooks(AIMessage("", additional_kwargs={"refusal": "No."}), another)
    with Session(tree, ":memory:") as session:
        assert world.send(session, "go").text == "cooked"
    assert tried == ["first"]


@pytest.mark.parametrize("refusing", ["cook", "spare"])
def test_candidate_made_at_run_time_counts_with_the_model_that_it_inherits(
    world: World, refusing: str
) -> None:
    tried: list[str] = []

    def answer(name: str) -> Script:
        def play(messages: Sequence[BaseMessage]) -> Any:
            tried.append(name)
            return AIMessage("", additional_kwargs={"refusal": "No."})

        return play

    def head(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        return Call(*ROUTED) if last.type == "human" else str(last.text)

    model = ScriptedModel({"head": head, "cook": answer("cook"), "*": answer("spare")})
    fit = {"cook": 0.5, "spare": 0.5} | {refusing: 0.9}
    spare = Agent("spare", capabilities={"cook dinner": fit["spare"]})
    tree = Agent(
        "head",
        model=model,
        subordinates=[Agent("cook", capabilities={"cook dinner": fit["cook"]})],
        permissions=Permissions(spawn=Spawn(profiles=("spare",))),
    )
    with Session(tree, ":memory:", spawnable={"spare": spare}) as session:
        world.send(session, "go")
        tried.clear()
        world.do(session, "spawn", "head", "spare")
        world.send(session, "go")
    assert tried == [refusing]


def pause(text: str) -> AIMessage:
    return AIMessage(text, response_metadata={"stop_reason": "pause_turn"})


def test_paused_reply_is_sent_back_and_continued(world: World) -> None:
    steps: list[Any] = [pause("I search. "), pause("I read. "), AIMessage("It is 42.")]

    text, response, model = ask_leaf(world, lambda _: steps.pop(0))

    assert response.status == "fulfilled"
    assert text == "I search. I read. It is 42."
    assert [call.messages[-1].type for call in read_calls(model)] == ["human", "ai", "ai"]


def test_reply_is_continued_at_most_ten_times(world: World) -> None:
    _, response, model = ask_leaf(world, lambda _: pause("wait "))

    assert len(read_calls(model)) == MAX_PAUSES + 1
    assert (response.status, response.end) == ("partial", "paused")


def test_empty_end_is_partial_with_the_last_text_of_the_request(world: World) -> None:
    _, response, _ = ask_leaf(world, [Reply("I look around.", [Call("look")]), ""])

    assert (response.status, response.result, response.end) == (
        "partial",
        "I look around.",
        "empty",
    )


def test_empty_end_without_any_text_is_unable(world: World) -> None:
    _, response, _ = ask_leaf(world, [""])

    assert (response.status, response.end, response.failed) == ("unable", "empty", True)


def test_end_stands_in_live_events(world: World) -> None:
    model = ScriptedModel({"head": pass_on("leaf"), "leaf": [cut("a "), cut("b")]})
    tree = Agent("head", model=model, subordinates=[Agent("leaf")])
    with Session(tree, ":memory:") as session:
        events = world.events(session, "go")
    ends = [(str(event.kind), event.data["end"]) for event in events if "end" in event.data]
    assert ends == [("message", "length"), ("message", "length"), ("response", "length")]


def test_end_stands_in_events_and_in_sql(world: World, tmp_path: Any) -> None:
    model = ScriptedModel({"head": pass_on("leaf"), "leaf": [cut("a "), cut("b")]})
    tree = Agent("head", model=model, subordinates=[Agent("leaf")])
    with Session(tree, tmp_path / "ends.sqlite") as session:
        world.send(session, "go")
        [leaf] = session.trace().subordinates
        thread = session.thread_store.get(leaf.thread_id)
        ends = [event.data.get("end") for event in thread.events if event.kind == "message"]
    assert ends == [None, "length", None, "length"]
    with sqlite3.connect(tmp_path / "ends.sqlite") as connection:
        query = "SELECT json_extract(data, '$.artifact.end') FROM events WHERE kind = 'message'"
        assert ("length",) in connection.execute(query).fetchall()
        query = "SELECT status, reply_end FROM delegations"
        assert connection.execute(query).fetchall() == [("partial", "length")]


# The answer


def test_report_beside_a_delegation_is_not_taken(world: World) -> None:
    def mid(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "human":
            return [delegate("leaf", "go"), report("fulfilled", "A guess.")]
        texts = [without_marks(message.text) for message in messages]
        refused = [text for text in texts if text.startswith("Error")]
        return f"{refused[0]} | leaf: {messages[-2].text}"

    model = ScriptedModel({"head": pass_on("mid"), "mid": mid, "leaf": ["It is 42."]})
    tree = Agent("head", model=model, subordinates=[Agent("mid", subordinates=[Agent("leaf")])])
    with Session(tree, ":memory:") as session:
        text = world.send(session, "go").text
    assert "read the answers of your other calls, then report" in text
    assert "A guess." not in text


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("status", ["fulfilled", "partial", "unable"])
def test_report_beside_a_tool_that_fails_is_refused(world: World, order: int, status: str) -> None:
    calls = [Call("pay"), report(status, "All is paid.")][::order]
    text, response, model = ask_leaf(world, [Reply("", calls), "The card was refused."])

    assert (response.status, text) == ("fulfilled", "The card was refused.")
    shown = read_calls(model)[1].messages
    told = [without_marks(message.text) for message in shown if message.name == "report"]
    assert told == [
        "Error: not reported: pay, which you called beside it, did not succeed. Read the result, "
        "then report what has come of your task"
    ]


def test_report_beside_a_tool_waits_and_is_taken(world: World) -> None:
    steps = [[Call("look"), report("partial", "Half is seen.")]]
    _, response, model = ask_leaf(world, steps)

    assert (response.status, response.result) == ("partial", "Half is seen.")
    assert len(read_calls(model)) == 1


def test_report_beside_an_unknown_tool_is_refused(world: World) -> None:
    steps = [[Call("nothing"), report("fulfilled", "Done.")], "I could not."]

    assert ask_leaf(world, steps)[0] == "I could not."


def test_report_without_a_result_takes_the_text_beside_it(world: World) -> None:
    text, response, _ = ask_leaf(
        world, [Reply("It is 42.", [Call("report", {"status": "fulfilled"})])]
    )

    assert (response.status, text) == ("fulfilled", "It is 42.")


def test_second_report_of_a_message_is_refused(world: World) -> None:
    calls = [report("fulfilled", "first"), report("unable", "second")]

    assert ask_leaf(world, [calls])[0] == "first"


@pytest.mark.parametrize("messages", [[], [AIMessage("")]])
def test_graph_without_an_answer_of_its_own_is_unable(world: World, messages: list[Any]) -> None:
    def build() -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("work", lambda state: {"messages": messages})
        graph.add_edge(START, "work")
        return graph.compile(name="leaf")

    model = ScriptedModel({"head": pass_on("leaf")})
    with Session(Agent("head", model=model, subordinates=[build()]), ":memory:") as session:
        for _ in range(2):
            world.send(session, "Book a table")
        requests = session.trace().subordinates[0].requests
    assert [str(request.status) for request in requests] == ["unable", "unable"]


def test_end_of_a_message_that_a_runnable_returns_counts(world: World) -> None:
    said = AIMessage("Half", response_metadata={"finish_reason": "length"})
    leaf: Any = RunnableLambda(lambda _: said, name="leaf")
    model = ScriptedModel({"head": pass_on("leaf")})
    with Session(Agent("head", model=model, subordinates=[leaf]), ":memory:") as session:
        world.send(session, "go")
        [request] = session.trace().subordinates[0].requests
    assert request.response is not None
    assert (request.response.status, request.response.end) == ("partial", "length")


@pytest.mark.parametrize(
    ("word", "end"), [("content_filter", "filtered"), ("length", "length"), ("stop", "empty")]
)
def test_last_text_of_the_request_counts_if_the_end_is_empty(
    world: World, word: str, end: str
) -> None:
    def play(messages: Sequence[BaseMessage]) -> Any:
        return Reply("", finish_reason=word) if called(messages) else LOOK

    _, response, _ = ask_leaf(world, play)

    assert (response.status, response.result, response.end) == ("partial", "I look around.", end)


def called(messages: Sequence[BaseMessage]) -> bool:
    return any(message.type == "tool" for message in messages)


def test_refusal_with_calls_runs_none_of_them(world: World) -> None:
    ran: list[str] = []

    def search() -> str:
        """Search."""
        ran.append("search")
        return "done"

    call = {"name": "search", "args": {}, "id": "1"}
    reply = AIMessage("No.", tool_calls=[call], response_metadata={"stop_reason": "refusal"})
    _, response, model = ask_leaf(world, lambda _: reply, [search])

    assert (response.status, response.end, response.reason) == ("unable", "refused", "refused: No.")
    assert (ran, len(read_calls(model))) == ([], 1)


class Sum(BaseModel):
    total: int


def test_parts_of_a_cut_reply_meet_a_contract_together(world: World) -> None:
    model = ScriptedModel({"head": [cut('{"total": '), "42}"]})
    agent = Agent("head", model=model, contract=Contract(output=Sum))
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")
    assert result.text == '{"total": 42}'


def test_pause_without_content_is_an_empty_end(world: World) -> None:
    text, response, model = ask_leaf(world, lambda _: pause(""))

    assert (response.status, response.end) == ("unable", "empty")
    assert (text, len(read_calls(model))) == ("[unable] empty: it has answered nothing", 1)


def test_message_waits_for_the_end_of_a_pause(world: World) -> None:
    steps: list[Any] = [pause("I search. "), pause("I read. "), AIMessage("It is 42."), "Read."]
    shown: list[list[str]] = []

    def play(messages: Sequence[BaseMessage]) -> Any:
        shown.append([message.type for message in messages])
        if len(shown) == 1:
            session.send_message("head", "Be quick")
        return steps.pop(0)

    with Session(Agent("head", model=ScriptedModel({"head": play})), ":memory:") as session:
        world.send(session, "go")
    assert shown[2][-3:] == ["human", "ai", "ai"]
    assert shown[3][-4:] == ["ai", "ai", "ai", "human"]


def test_two_clients_of_one_model_are_no_two_models(world: World) -> None:
    def play(request: Any) -> Any:
        tried.append(request.body["model"])
        return Reply("No.", finish_reason="content_filter")

    tried: list[str] = []
    with OpenAIServer(play) as server:
        clients = [
            ChatOpenAI(model="one", base_url=server.url, api_key=SecretStr("k")) for _ in range(2)
        ]
        model = ScriptedModel(
            {"head": lambda said: pass_on("")(said) if called(said) else Call(*ROUTED)}
        )
        cooks = [
            Agent("first", model=clients[0], capabilities={"cook": 0.9}),
            Agent("second", model=clients[1], capabilities={"cook": 0.8}),
        ]
        with Session(Agent("head", model=model, subordinates=cooks), ":memory:") as session:
            world.send(session, "go")
    assert tried == ["one"]


@pytest.mark.parametrize(
    "play",
    [
        lambda task: {"messages": [HumanMessage(task, id="new")]},
        lambda task: [HumanMessage(task)],
        HumanMessage,
    ],
)
def test_runnable_that_returns_its_task_alone_is_unable(world: World, play: Any) -> None:
    leaf: RunnableLambda[Any, Any] = RunnableLambda(play, name="leaf")
    model = ScriptedModel({"head": pass_on("leaf")})
    with Session(Agent("head", model=model, subordinates=[leaf]), ":memory:") as session:
        world.send(session, "go")
        [request] = session.trace().subordinates[0].requests
    assert str(request.status) == "unable"


def test_last_text_of_a_graph_counts_if_its_end_is_empty(world: World) -> None:
    def build() -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("work", lambda state: {"messages": [AIMessage("Half."), AIMessage("")]})
        graph.add_edge(START, "work")
        return graph.compile(name="leaf")

    model = ScriptedModel({"head": pass_on("leaf")})
    with Session(Agent("head", model=model, subordinates=[build()]), ":memory:") as session:
        world.send(session, "go")
        [request] = session.trace().subordinates[0].requests
    assert request.response is not None
    assert (request.response.status, request.response.result) == ("partial", "Half.")


def test_report_waits_for_the_answer_of_a_person(world: World) -> None:
    def confirm() -> str:
        """Ask a person."""
        return str(interrupt("May I?"))

    calls = [report("fulfilled", "All is paid."), Call("confirm")]
    model = ScriptedModel({"head": pass_on("leaf"), "leaf": [calls]})
    tree = Agent("head", model=model, subordinates=[Agent("leaf", tools=[confirm])])
    with Session(tree, ":memory:") as session:
        [question] = world.send(session, "go").questions
        assert world.answer(session, {question.id: "yes"}).text == "All is paid."


def test_report_beside_a_denied_call_is_refused(world: World) -> None:
    steps: list[Any] = [[report("fulfilled", "All is paid."), Call("look")], "It was denied."]
    model = ScriptedModel({"head": pass_on("leaf"), "leaf": steps})
    leaf = Agent("leaf", tools=[look], permissions=Permissions(approvals={"look": "ask"}))
    with Session(Agent("head", model=model, subordinates=[leaf]), ":memory:") as session:
        [question] = world.send(session, "go").questions
        answers = {question.id: {"type": "reject"}}
        assert world.answer(session, answers).text == "It was denied."


def test_report_waits_for_a_tool_that_adds_messages(world: World) -> None:
    @tool
    def act(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Act."""
        result = ToolMessage("acted", tool_call_id=call_id)
        return Command(update={"messages": [result, HumanMessage("Noted.")]})

    text, _, model = ask_leaf(world, [[Call("act"), report("fulfilled", "Done.")]], [act])

    assert text == "Done."
    assert len(read_calls(model)) == 1


@pytest.mark.parametrize("result", [80, [1, {"price": 80}], {"price": 80}, True])
def test_reported_result_may_be_any_json(world: World, result: Any) -> None:
    _, response, _ = ask_leaf(world, [report("fulfilled", result)])

    assert json.loads(response.result) == result


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ({"outcome": "happened", "result": "paid"}, "All is paid."),
        ({"outcome": "not_happened"}, "The bill is still open."),
        ("run_again", "All is paid."),
    ],
)
def test_report_waits_for_a_call_that_a_crash_cut_short(
    world: World, tmp_path: Path, fork_server: ForkServer, outcome: Any, text: str
) -> None:
    database = tmp_path / "bill.sqlite"
    words = ("-m", "tests.scenarios.drivers.reporting", str(database))
    process = fork_server.start(*words, cwd=REPOSITORY)
    process.communicate()
    with Session(build_tree(lambda: "paid"), database, thread=THREAD) as session:
        [question] = world.resume(session).questions
        assert question.path == "head/mid/leaf"

        assert world.answer(session, {question.id: outcome}).text == text
