"""Every agent asks its superior alike, who answers, combines, or asks its own superior."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

from echelons import Agent, Permissions, Session, SqliteCheckpointer
from echelons.delegation import DelegationResponse, Status
from echelons.errors import WrongAnswer
from echelons.identity.lineage import NOTICES_KEY
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, report
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.counsel import QUESTION, Counsel
from tests.scenarios.drivers.forks import Forks
from tests.told_lines import get_last, list_notices, read_results

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

CELLS = sample(
    [(1, 1), (1, 3), (2, 8), (4, 2), (5, 1)],
    [(depth, width) for depth in range(1, 6) for width in range(1, 9)],
)
"""Depths and widths."""


@pytest.fixture(scope="module")
def counsel(fork_server: ForkServer) -> Iterator[Forks]:
    """Does each thing in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.counsel")
    yield forks
    forks.end()


def do(counsel: Forks, *arguments: Any, **tree: Any) -> dict[str, Any]:
    database, *rest = arguments
    action, *given = rest
    told = counsel.run(str(database), json.dumps(tree), action, *map(json.dumps, given))
    assert told.code == 0
    found: dict[str, Any] = told.returned
    return found


def ask(question: str, **more: Any) -> Call:
    return Call("ask_superior", {"question": question, **more})


def asks_first(question: Call, then: str) -> Callable[[Any], Any]:
    """Return the script of an agent that asks, and is done with the answer."""
    return lambda messages: question if len(messages) == 1 else then


def results(session: Session, name: str = "") -> list[ToolMessage]:
    """Return the tool messages of the root's thread, or those of one tool."""
    found = session.thread_store.get(session.thread_id).messages
    return [each for each in found if isinstance(each, ToolMessage) and name in ("", each.name)]


# From one level to another


def test_a_question_of_the_fourth_level_is_answered_by_the_second(
    tmp_path: Path, counsel: Forks
) -> None:
    tree = {"depth": 4, "width": 1, "answered_by": "q1-lead"}
    database = tmp_path / "t.sqlite"

    left = do(counsel, database, "leave", "q1-mid", **tree)
    ended = do(counsel, database, "resume", **tree)

    assert left["status"] == "paused"
    assert (ended["status"], ended["text"]) == ("finished", "q1 heard by q1-lead")
    calls = Counter(left["calls"]) + Counter(ended["calls"])
    assert calls == {"head": 2, "q1-lead": 3, "q1-mid": 4, "q1-low": 2}


def test_a_question_goes_to_the_human_and_its_answer_back_down(
    tmp_path: Path, counsel: Forks
) -> None:
    tree = {"depth": 4, "width": 1}
    database = tmp_path / "t.sqlite"

    asking = do(counsel, database, "send", **tree)
    [question] = asking["asked"]
    ended = do(counsel, database, "answer", {question: "1999"}, **tree)

    assert asking["asked"] == {question: "q1"}
    assert asking["calls"] == {"head": 2, "q1-lead": 2, "q1-mid": 2, "q1-low": 1}
    assert (ended["status"], ended["text"]) == ("finished", "q1 heard 1999")
    assert ended["calls"] == {"head": 2, "q1-lead": 2, "q1-mid": 2, "q1-low": 1}


def test_two_questions_at_once_are_combined_into_one_by_their_superior(
    tmp_path: Path, counsel: Forks
) -> None:
    tree = {"depth": 3, "width": 2, "combines": True}
    database = tmp_path / "t.sqlite"

    asking = do(counsel, database, "send", **tree)
    [question] = asking["asked"]
    ended = do(counsel, database, "answer", {question: "both"}, **tree)

    assert asking["asked"] == {question: "q1 and q2"}
    assert (ended["status"], ended["text"]) == ("finished", "q1 heard both | q2 heard both")
    branches = ("q1-lead", "q1-mid", "q2-lead", "q2-mid")
    counted = Counter(asking["calls"]) + Counter(ended["calls"])
    assert counted == {"head": 4, **dict(zip(branches, (4, 2, 4, 2), strict=True))}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("depth", "width"), CELLS)
def test_each_agent_of_a_tree_gets_the_answer_to_its_own_question(
    tmp_path: Path, world: World, depth: int, width: int, at_once: bool
) -> None:
    tree = Counsel(depth, width)
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = Session(tree.agent, saver)
        result = world.send(session, "ask")
        assert [each.value for each in result.questions] == tree.questions
        assert {each.path for each in result.questions} == {"head"}
        ids = {each.value: each.id for each in result.questions}
        if at_once:
            result = world.answer(session, {ids[each]: f"to {each}" for each in ids})
        else:
            for question in reversed(tree.questions):
                session = Session(tree.agent, saver)
                result = world.answer(session, {ids[question]: f"to {question}"})

        assert result.finished
        assert result.text == " | ".join(f"{each} heard to {each}" for each in tree.questions)
        expected = dict.fromkeys(tree.count_calls(), 4)
        lowest = {} if depth == 1 else {each: 2 for each in expected if each.count("-")}
        lowest = {each: 2 for each in lowest if each.endswith(("-lead", "-mid", "-low", "-base"))}
        bottom = ("", "", "-lead", "-mid", "-low", "-base")[depth]
        expected |= {each: 2 for each in lowest if bottom and each.endswith(bottom)}
        expected |= {"head": 2} if depth == 1 else {}
        assert tree.count_calls() == expected
        assert session.inbox() == []


# What a superior's model reads, and how it answers


def test_superior_reads_asker_question_and_how_to_answer(world: World) -> None:
    question = ask("Which city?", choices=["Rome", "Oslo"])
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "later"], "eat": [question]})
    with Session(Agent("head", model=model, subordinates=[Agent("eat")]), ":memory:") as session:
        world.send(session, "plan")
        [answer] = results(session)
        [thread] = session.thread_store.subordinates(session.thread_id)

    response = DelegationResponse.load(answer.artifact)
    assert response.status is Status.NEEDS_INPUT
    [asked] = response.questions
    assert (asked.text, asked.choices, asked.thread_id) == ("Which city?", ("Rome", "Oslo"), thread)
    assert answer.text == "[needs_input]"
    assert list_notices([answer]) == [
        [
            'eat asks: "Which city?" Choices: ["Rome", "Oslo"]. To answer, give call_subordinate '
            f'your answer as the message and answers="{thread[:8]}".'
        ]
    ]


def test_a_call_that_goes_on_with_the_subordinate_is_an_answer_too(world: World) -> None:
    scripts: dict[str, Any] = {"eat": asks_first(ask("Which city?"), "pizza")}
    scripts["head"] = [delegate("eat", "dinner"), delegate("eat", "Rome"), "done"]
    model = ScriptedModel(scripts)
    with Session(
        Agent("head", model=model, subordinates=[Agent("eat", guidance="")]), ":memory:"
    ) as session:
        assert world.send(session, "plan").text == "done"
        [thread] = session.thread_store.subordinates(session.thread_id)
        read = [(each.type, str(each.text)) for each in session.thread_store.get(thread).messages]

    assert read == [
        ("human", "dinner"),
        ("ai", ""),
        ("tool", "asked: the next message is the answer"),
        ("human", "Rome"),
        ("ai", "pizza"),
    ]


def test_a_question_that_is_not_answered_in_a_turn_is_there_in_the_next(world: World) -> None:
    def head(messages: Any) -> Any:
        [(_, asking)] = QUESTION.findall(" ".join(str(each.text) for each in messages)) or [
            ("", "")
        ]
        if messages[-1].text == "plan":
            return delegate("eat", "dinner")
        if messages[-1].text == "go on":
            return Call("call_subordinate", {"message": "Rome", "answers": asking})
        return "done" if messages[-1].text == "pizza" else "ask me later"

    model = ScriptedModel({"head": head, "eat": asks_first(ask("Which city?"), "pizza")})
    with Session(
        Agent("head", guidance="", model=model, subordinates=[Agent("eat")]), ":memory:"
    ) as session:
        assert world.send(session, "plan").text == "ask me later"
        assert world.send(session, "go on").text == "done"
        assert len(session.thread_store.subordinates(session.thread_id)) == 1


def answer_all(messages: Any) -> Any:
    """Answer each question that the latest results have, each with its own text."""
    asked = QUESTION.findall(read_results(messages))
    calls = [Call("call_subordinate", {"message": q[::-1], "answers": a}) for q, a in asked]
    if calls:
        return calls
    answers = [each for each in messages[::-1] if isinstance(each, ToolMessage)]
    texts = [str(each.text).partition("\n")[0] for each in answers]
    return " | ".join(sorted(texts[:2]))


def test_two_threads_of_one_agent_that_ask_are_both_answered(world: World) -> None:
    both = delegate_many(
        delegate("eat", "lunch", reset=True), delegate("eat", "dinner", reset=True)
    )

    def head(messages: Any) -> Any:
        return both if get_last(messages).type == "human" else answer_all(messages)

    def eat(messages: Any) -> Any:
        if len(messages) == 1:
            return ask(f"{messages[0].text}?")
        return f"{messages[0].text} with {messages[-1].text}"

    model = ScriptedModel({"head": head, "eat": eat})
    # With only one subordinate there is no `delegate_many`.
    agent = Agent("head", guidance="", model=model, subordinates=[Agent("eat"), Agent("sleep")])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "plan").text == "dinner with ?rennid | lunch with ?hcnul"


def test_an_agent_further_down_that_got_a_routed_task_is_answered_on_its_thread(
    world: World,
) -> None:
    def head(messages: Any) -> Any:
        if get_last(messages).type == "human":
            return Call("call_subordinate", {"message": "Repair the bicycle"})
        return answer_all(messages)

    script = {"head": head, "mechanic": asks_first(ask("Which wheel?"), "mended")}
    mechanic = Agent("mechanic", capabilities={"repair bicycles": 0.9})
    workshop = Agent("workshop", subordinates=[mechanic])
    kitchen = Agent("kitchen", capabilities={"cooking": 0.9})
    model = ScriptedModel(script)
    tree = Agent("head", guidance="", model=model, subordinates=[workshop, kitchen])
    with Session(tree, ":memory:") as session:
        result = world.send(session, "go")
        [first, second] = results(session)

    [line] = first.response_metadata[NOTICES_KEY]
    assert line.startswith('workshop/mechanic asks: "Which wheel?"')
    assert second.text == "mended"
    assert "mended" in result.text
    assert [each.agent for each in model.calls] == ["head", "mechanic", "head", "mechanic", "head"]


def test_all_questions_of_one_call_with_several_requests_are_reported(world: World) -> None:
    many = delegate_many(delegate("eat", "dinner"), delegate("sleep", "bed"))

    def head(messages: Any) -> Any:
        return many if get_last(messages).type == "human" else answer_all(messages)

    model = ScriptedModel(
        {"head": head, "eat": asks_first(ask("abc", choices=["cba", "x"]), "fed")}
        | {"sleep": asks_first(ask("def"), "rested")}
    )
    agent = Agent("head", guidance="", model=model, subordinates=[Agent("eat"), Agent("sleep")])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "plan").text == "fed | rested"
        answers = results(session, "call_subordinate")
        assert [each.text for each in answers] == ["fed", "rested"]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"answers": "nowhere1"}, "no question and no conversation has the id 'nowhere1'"),
        ({"answers": "ID", "subordinate": "sleep"}, "is one of 'eat', not of 'sleep'"),
        ({"answers": "ID", "reset": True}, "leave reset out"),
    ],
)
def test_an_answer_to_no_question_is_refused(args: dict[str, Any], why: str) -> None:
    def head(messages: Any) -> Any:
        if get_last(messages).type == "human":
            return delegate("eat", "dinner")
        if asked := QUESTION.findall(read_results(messages)):
            given = {key: asked[0][1] if each == "ID" else each for key, each in args.items()}
            return Call("call_subordinate", {"message": "Rome", **given})
        return "end"

    model = ScriptedModel({"head": head, "eat": [ask("Which city?")]})
    agent = Agent("head", guidance="", model=model, subordinates=[Agent("eat"), Agent("sleep")])
    with Session(agent, ":memory:") as session:
        assert session.send("plan").result().text == "end"
        [_, refused] = results(session)

    assert refused.status == "error"
    assert why in refused.text


# The root, whose superior is the user


def rooted(*calls: Any) -> Agent:
    return Agent("head", model=ScriptedModel([*calls, "end"]))


def test_the_user_gets_a_typed_question_and_the_root_goes_on_with_the_answer(world: World) -> None:
    with Session(rooted(ask("How many?", schema={"type": "integer"})), ":memory:") as session:
        result = world.send(session, "plan")
        [question] = result.questions
        assert result.status == "asking"
        assert (question.value, question.schema) == ("How many?", {"type": "integer"})
        assert (question.path, question.asker, question.choices) == ("head", "head", ())
        assert question.age.total_seconds() >= 0
        with pytest.raises(WrongAnswer):
            world.answer(session, {question.id: "three"})

        assert world.answer(session, {question.id: 3}).text == "end"
        assert [each.text for each in results(session)] == ["3"]


def test_an_answer_that_is_none_of_the_choices_is_refused(world: World) -> None:
    with Session(rooted(ask("Which?", choices=["Rome", "Oslo"])), ":memory:") as session:
        [question] = world.send(session, "plan").questions
        assert question.choices == ("Rome", "Oslo")
        with pytest.raises(WrongAnswer, match="is not one of"):
            world.answer(session, {question.id: "Paris"})

        assert world.answer(session, {question.id: "Oslo"}).text == "end"
        assert [each.text for each in results(session)] == ["Oslo"]


def test_a_wrong_answer_through_langgraph_is_asked_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    graph = rooted(ask("Which?", choices=["Rome", "Oslo"])).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    world.invoke(graph, {"messages": [("user", "plan")]}, config)

    again = world.invoke(graph, Command(resume="Paris"), config)
    assert [each.value["question"] for each in again["__interrupt__"]] == ["Which?"]

    end = world.invoke(graph, Command(resume="Rome"), config)
    assert [each.text for each in end["messages"][-2:]] == ["Rome", "end"]


def test_a_root_of_which_nothing_is_stored_decides_by_itself(world: World) -> None:
    end = world.invoke(rooted(ask("Which?")).compile(), {"messages": [("user", "plan")]})

    assert end["messages"][-2].status == "error"
    assert "nobody can answer" in end["messages"][-2].text
    assert end["messages"][-1].text == "end"


def test_a_stopped_root_withdraws_its_question(world: World) -> None:
    with Session(rooted(ask("Which?")), ":memory:") as session:
        world.send(session, "plan")
        world.do(session, "stop")
        assert session.inbox() == []

        result = world.resume(session)
        assert result.status == "stopped"
        assert "not run" in results(session)[0].text


def test_the_event_of_a_question_has_its_text_and_its_choices(saver: SqliteCheckpointer) -> None:
    with Session(rooted(ask("Which?", choices=["a", "b"])), saver) as session:
        events = [each for each in session.send("plan") if each.kind == "question"]
        with saver.cursor(transaction=False) as cursor:
            rows = cursor.execute("SELECT data FROM events WHERE kind = 'question'").fetchall()

    [event] = events
    assert (event.content, event.data["value"]) == ("Which?", "Which?")
    assert event.data["choices"] == ["a", "b"]
    assert [json.loads(data) for (data,) in rows] == [{"value": "Which?", "choices": ["a", "b"]}]


def test_a_message_that_comes_with_a_question_is_read_before_the_superior_hears_of_it() -> None:
    def eat(messages: Any) -> Any:
        if len(messages) == 1:
            session.send_message("head/eat", "Rome, by the way")
            return ask("Which city?")
        return f"heard {messages[-1].text}"

    model = ScriptedModel({"head": [delegate("eat", "dinner"), "end"], "eat": eat})
    with Session(
        Agent("head", guidance="", model=model, subordinates=[Agent("eat")]), ":memory:"
    ) as session:
        session.send("plan").result()
        [answer] = results(session)
        [thread] = session.thread_store.subordinates(session.thread_id)
        [withdrawn] = [
            each
            for each in session.thread_store.get(thread).messages
            if isinstance(each, ToolMessage)
        ]

    assert str(answer.text).endswith('Message from the user: "Rome, by the way"')
    assert withdrawn.text.startswith("not asked: a message has come in meanwhile")


# What a model gets wrong


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"question": " "}, "question: it is empty"),
        ({}, "question: Field required"),
        ({"question": 3}, "question: Input should be a valid string"),
        ({"question": "Which?", "choices": []}, "choices: give at least one"),
        ({"question": "Which?", "choices": ["a", ""]}, "choices: one of them is empty"),
        ({"question": "Which?", "choices": ["a", 1]}, "choices.1: Input should be a valid string"),
        ({"question": "Which?", "schema": {"type": "text"}}, "schema: it is no JSON Schema"),
        ({"question": "Which?", "schema": "integer"}, "schema: Input should be a valid dict"),
        ({"question": "Which?", "schema": {"$ref": "https://a.b/c"}}, "leads to no part of it"),
        (
            {"question": "Which?", "choices": ["a"], "schema": {"type": "integer"}},
            "choices: one of them does not fit the schema: 'a' is not of type 'integer'",
        ),
        ({"question": "x" * 2**20}, "the question has 1048584 bytes or more, the limit is 65536"),
    ],
)
@pytest.mark.parametrize("is_root", [True, False])
def test_a_question_that_cannot_be_asked_is_answered_with_the_reason(
    args: dict[str, Any], why: str, is_root: bool
) -> None:
    wrong = Call("ask_superior", args)
    if is_root:
        agent = rooted(wrong)
    else:
        model = ScriptedModel({"head": [delegate("eat", "go"), "end"], "eat": [wrong, "fed"]})
        agent = Agent("head", model=model, subordinates=[Agent("eat")])
    with Session(agent, ":memory:") as session:
        assert session.send("plan").result().text == "end"
        thread = session.thread_id
        if not is_root:
            [thread] = session.thread_store.subordinates(thread)
        said = session.thread_store.get(thread).messages
    [answer] = [each for each in said if isinstance(each, ToolMessage)]

    assert answer.status == "error"
    assert why in answer.text


@pytest.mark.parametrize(
    ("calls", "status", "why"),
    [
        ([report("partial", "half"), ask("Which?")], "needs_input", "read the answers"),
        ([ask("Which?"), report("partial", "half")], "needs_input", "read the answers"),
    ],
)
def test_report_beside_a_question_is_not_taken(calls: list[Call], status: str, why: str) -> None:
    model = ScriptedModel({"head": [delegate("eat", "go"), "end"], "eat": [calls]})
    with Session(Agent("head", model=model, subordinates=[Agent("eat")]), ":memory:") as session:
        session.send("plan").result()
        [answer] = results(session)
        [thread] = session.thread_store.subordinates(session.thread_id)
        own = session.thread_store.get(thread).messages

    assert DelegationResponse.load(answer.artifact).status == status
    assert isinstance(own[1], AIMessage)
    assert [each.status for each in own[2:] if isinstance(each, ToolMessage)] == [
        "success",
        "error",
    ]
    assert why in own[3].text


def test_a_question_waits_for_the_other_calls_of_its_message(world: World) -> None:
    both = [delegate("cook", "soup"), ask("Which?")]
    model = ScriptedModel(
        {"head": [delegate("eat", "go"), "end"], "eat": [both], "cook": ["soup is ready"]}
    )
    eat = Agent("eat", subordinates=[Agent("cook")])
    with Session(Agent("head", model=model, subordinates=[eat]), ":memory:") as session:
        world.send(session, "plan")
        [thread] = session.thread_store.subordinates(session.thread_id)
        own = [str(each.text) for each in session.thread_store.get(thread).messages]

    assert "soup is ready" in own
    assert [each.agent for each in model.calls] == ["head", "eat", "cook", "head"]


def call_ask(question: str, **more: Any) -> Call:
    return Call("ask", {"question": question, **more})


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"to": "user"}, "you may not ask the user yourself"),
        ({"wait": False}, "you may not ask the user yourself"),
        ({"to": "superior", "deadline_seconds": 60}, "only a question to the user has them"),
        ({"wait": False, "deadline_seconds": 60}, "leave out one of both"),
    ],
)
def test_ask_is_refused_where_the_place_makes_it_impossible(args: dict[str, Any], why: str) -> None:
    model = ScriptedModel(
        {"head": [delegate("eat", "go"), "end"], "eat": [call_ask("Which city?", **args), "fed"]}
    )
    with Session(Agent("head", model=model, subordinates=[Agent("eat")]), ":memory:") as session:
        assert session.send("plan").result().text == "end"

    [answer] = [each for each in model.calls[2].messages if each.type == "tool"]
    assert why in answer.text


@pytest.mark.parametrize("to", [None, "superior"])
def test_ask_of_a_subordinate_reaches_its_superior_and_then_the_user(to: str | None) -> None:
    model = ScriptedModel(
        {
            "head": [delegate("eat", "go"), call_ask("City?"), delegate("eat", "Rome"), "end"],
            "eat": [call_ask("Which city?", **({"to": to} if to else {})), "fed in Rome"],
        }
    )
    with Session(Agent("head", model=model, subordinates=[Agent("eat")]), ":memory:") as session:
        [question] = session.send("plan").result().questions
        assert (question.path, question.value) == ("head", "City?")
        assert session.answer(question.id, "Rome").result().text == "end"


def test_ask_without_waiting_leaves_a_question_open_at_the_root() -> None:
    model = ScriptedModel([call_ask("Which city?", wait=False), "planned"])
    with Session(Agent("head", model=model), ":memory:") as session:
        assert session.send("plan").result().text == "planned"
        [question] = session.inbox()
        session.answer(question.id, "Rome").result()
        session.send("go on").result()
        assert any("Rome" in each.text for each in model.calls[-1].messages)


def test_tool_of_an_agents_own_may_be_called_ask() -> None:
    def ask(who: str) -> str:
        """Ask a colleague."""
        return f"{who} says yes"

    model = ScriptedModel([Call("ask", {"who": "Ann"}), "end"])
    with Session(Agent("head", model=model, tools=[ask]), ":memory:") as session:
        session.send("plan").result()

    assert model.calls[0].tools == ("ask",)
    assert model.calls[1].messages[-1].text == "Ann says yes"


def test_ask_is_a_tool_in_usage_only_if_it_is_the_agents(world: World) -> None:
    def ask(subject: str) -> str:
        """Ask a neighbour."""
        return f"heard {subject}"

    def count_tools(tools: Sequence[Any], **arguments: Any) -> tuple[int, tuple[str, ...]]:
        permissions = Permissions(contact_user=True)
        model = ScriptedModel([Call("ask", arguments), "over"])
        agent = Agent("head", model=model, tools=[*tools], permissions=permissions)
        with Session(agent, ":memory:") as session:
            result = world.send(session, "go")
            for question in result.questions:
                result = world.answer(session, {question.id: "yes"})
            assert result.text == "over"
            calls = session.usage().calls
            return sum(call.kind == "tool" for call in calls), session.trace().tools

    assert count_tools([], question="May I?") == (0, ())
    assert count_tools([ask], subject="Rome") == (1, ("ask",))
