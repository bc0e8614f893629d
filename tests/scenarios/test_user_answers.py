"""A superior is told what the user was asked past it: by tools, about calls, and for approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from echelons import Agent, Decision, Permissions, Session, SqliteCheckpointer, effect
from echelons.delegation import DelegationResponse
from echelons.delegation.user_answers import MAX_LENGTH, MAX_SHOWN
from echelons.identity.lineage import USER_ANSWERS_KEY
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.told_lines import list_notices

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

SECRET = "4111-1111"


def book(city: str) -> str:
    """Ask twice, and book."""
    return f"{interrupt(f'By day to {city}?')}, {interrupt({'seat': ['window', 'aisle']})}"


def pay(card: str) -> str:
    """Pay."""
    return f"paid with {len(card)}"


def tree(*steps: Any, tools: Any = (book, pay), rules: Any = (), head: Any = None) -> Agent:
    """Return head → mid → clerk; the clerk has the tools."""
    model = ScriptedModel(
        {
            "head": head or [delegate("mid", "go"), "over"] * 3,
            "mid": [delegate("clerk", "go"), "passed on"] * 3,
            "clerk": [*steps, "written"] * 3,
        }
    )
    mid = Agent("mid", subordinates=[Agent("clerk", tools=[*tools])])
    permissions = Permissions(approvals=dict(rules))
    return Agent("head", model=model, subordinates=[mid], permissions=permissions)


def told(session: Session, agent: str) -> list[list[str]]:
    """Return, for each result that an agent's model has read, what it was told beneath it."""
    threads = [each.thread_id for each in session.trace().walk() if each.agent == agent]
    messages = [each for key in threads for each in session.thread_store.get(key).messages]
    return list_notices(messages)


def answer_all(world: World, session: Session, *answers: Any) -> None:
    """Answer one question after the other, of a message to the root."""
    result = world.send(session, "go")
    for answer in answers:
        [question] = result.questions
        result = world.answer(session, {question.id: answer})
    assert result.finished


def test_superior_reads_what_a_tool_of_its_agent_asked(
    world: World, saver: SqliteCheckpointer
) -> None:
    with Session(tree(Call("book", {"city": "Oslo"})), saver) as session:
        answer_all(world, session, "yes", {"row": 7})

        assert told(session, "clerk") == [[]]
        assert told(session, "mid") == [
            [
                'clerk asked the user: "By day to Oslo?" The answer was: "yes"',
                'clerk asked the user: "{\\"seat\\": [\\"window\\", \\"aisle\\"]}" '
                'The answer was: "{\\"row\\": 7}"',
            ]
        ]
        assert told(session, "head") == [[]]


def test_question_without_journal_is_reported_with_tool_name(
    world: World, saver: SqliteCheckpointer
) -> None:
    look = effect(reads_only=True)(tool(book))
    with Session(tree(Call("book", {"city": "Oslo"}), tools=[look]), saver) as session:
        answer_all(world, session, "yes", "7")

        [lines] = told(session, "mid")
    asked = 'clerk asked the user: "a question of its tool book" The answer was: '
    assert lines == [f'{asked}"yes"', f'{asked}"7"']


def test_question_of_graph_in_a_tool_is_reported(world: World, saver: SqliteCheckpointer) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", f"{interrupt('Which?')} and {interrupt('Why?')}")]}

    inner: Any = StateGraph(MessagesState)
    inner.add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)
    graph = inner.compile(checkpointer=True)

    def consult() -> str:
        """Run a graph."""
        return str(graph.invoke({"messages": [("user", "x")]})["messages"][-1].text)

    with Session(tree(Call("consult"), tools=[consult]), saver) as session:
        answer_all(world, session, "this", "so")

        assert told(session, "mid") == [
            [
                'clerk asked the user: "Which?" The answer was: "this"',
                'clerk asked the user: "Why?" The answer was: "so"',
            ]
        ]


def ask_twice(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"{interrupt('Which?')} and {interrupt({'why': 'so'})}")]}


def ask_in_steps() -> Any:
    """Return a graph that asks in one node, and then in another."""
    inner: Any = StateGraph(MessagesState)
    inner.add_node("first", lambda _: {"messages": [("ai", f"{interrupt('Which?')}")]})
    inner.add_node("then", lambda _: {"messages": [("ai", f"so {interrupt({'why': 'so'})}")]})
    inner.add_edge(START, "first").add_edge("first", "then").add_edge("then", END)
    return inner.compile(name="clerk")


def ask_at_once() -> Any:
    inner: Any = StateGraph(MessagesState)
    inner.add_node("ask", ask_twice).add_edge(START, "ask").add_edge("ask", END)
    return inner.compile(name="clerk")


def clerk(task: str) -> str:
    """Ask twice."""
    return f"{interrupt('Which?')} and {interrupt({'why': 'so'})}"


ASKING: dict[str, Any] = {
    "function": lambda: clerk,
    "runnable": lambda: RunnableLambda(clerk, name="clerk"),
    "graph": ask_at_once,
    "graph in steps": ask_in_steps,
}


@pytest.mark.parametrize("kind", ASKING)
def test_superior_reads_what_a_plain_subordinate_asked(
    world: World, saver: SqliteCheckpointer, kind: str
) -> None:
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "over"],
            "mid": [delegate("clerk", "go"), "passed on"],
        }
    )
    mid = Agent("mid", subordinates=[ASKING[kind]()])
    agent = Agent("head", model=model, subordinates=[mid])
    with Session(agent, saver) as session:
        [first] = world.send(session, "go").questions
    # In another session, each time.
    with Session(agent, saver) as session:
        [second] = world.answer(session, {first.id: "this"}).questions
    with Session(agent, saver) as session:
        assert world.answer(session, {second.id: "that"}).finished

        asked = "clerk asked the user: "
        assert told(session, "mid") == [
            [
                f'{asked}"Which?" The answer was: "this"',
                f'{asked}"{{\\"why\\": \\"so\\"}}" The answer was: "that"',
            ]
        ]
        assert told(session, "head") == [[]]
        [trace] = [each for each in session.trace().walk() if each.agent == "clerk"]
        response = trace.requests[0].response
        assert response
        assert [each.answer for each in response.user_answers] == ["this", "that"]


@pytest.mark.parametrize("kind", ASKING)
def test_answer_is_read_after_process_died_before_storing_it(
    saver: SqliteCheckpointer, kind: str
) -> None:
    class Died(BaseException):
        """The process dies when the run has ended, and its step is not stored."""

    model = ScriptedModel({"head": [delegate("clerk", "go"), "over"]})
    agent = Agent("head", model=model, subordinates=[ASKING[kind]()])
    put, died = saver.put_writes, list[str]()

    def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        said = [each for _, value in writes if isinstance(value, list) for each in value]
        marked = [
            each for each in said if USER_ANSWERS_KEY in getattr(each, "response_metadata", ())
        ]
        if marked and not died:
            died.append(task_id)
            raise Died
        put(config, writes, task_id, task_path)

    with Session(agent, saver) as session:
        [first] = session.send("go").result().questions
        [second] = session.answer({first.id: "this"}).result().questions
        saver.put_writes = put_writes  # type: ignore[method-assign]
        with pytest.raises(Died):
            session.answer({second.id: "that"}).result()
        assert session.resume().result().finished

        [[first_told, second_told]] = told(session, "head")
    assert first_told.endswith('"this"')
    assert second_told.endswith('"that"')


def test_both_of_two_simultaneous_questions_are_reported(
    world: World, saver: SqliteCheckpointer
) -> None:
    def build(name: str) -> Any:
        inner: Any = StateGraph(MessagesState)
        inner.add_node("ask", lambda _: {"messages": [("ai", f"{interrupt(f'{name}?')}")]})
        inner.add_edge(START, "ask").add_edge("ask", END)
        return inner.compile(name=name)

    requests = [delegate(name, f"ask {name}") for name in ("one", "two")]
    model = ScriptedModel({"head": [delegate_many(*requests), "over"]})
    agent = Agent("head", model=model, subordinates=[build("one"), build("two")])
    with Session(agent, saver) as session:
        questions = {each.value: each.id for each in world.send(session, "go").questions}
        result = world.answer(session, {questions["two?"]: "yes"})
        assert [each.value for each in result.questions] == ["one?"]
        assert world.answer(session, {questions["one?"]: "no"}).finished
        [lines] = told(session, "head")
    assert lines == [
        'one asked the user: "one?" The answer was: "no"',
        'two asked the user: "two?" The answer was: "yes"',
    ]


DECISIONS = {
    "approve": "approve",
    "reject: too dear": Decision("reject", "too dear"),
    "edit": Decision("edit", edited_action={"name": "pay", "args": {"card": f"{SECRET}-2"}}),
}


@pytest.mark.parametrize("said", DECISIONS)
def test_approval_is_reported_with_decision_and_without_arguments(
    world: World, saver: SqliteCheckpointer, said: str
) -> None:
    agent = tree(Call("pay", {"card": SECRET}), rules={"pay": "ask"})
    with Session(agent, saver) as session:
        answer_all(world, session, DECISIONS[said])

        line = f'clerk asked the user: "May pay run?" The answer was: "{said}"'
        assert told(session, "mid") == [[line]]
        assert told(session, "head") == [[]]


def test_approval_and_questions_of_the_tool_are_reported_together(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent = tree(Call("book", {"city": "Oslo"}), rules={"book": "ask"})
    with Session(agent, saver) as session:
        answer_all(world, session, "approve", "yes", "window")

        [lines] = told(session, "mid")
    assert [each.partition(" The answer")[0] for each in lines] == [
        'clerk asked the user: "May book run?"',
        'clerk asked the user: "By day to Oslo?"',
        'clerk asked the user: "{\\"seat\\": [\\"window\\", \\"aisle\\"]}"',
    ]


@pytest.mark.parametrize("reads_only", [False, True])
def test_decision_for_the_thread_is_reported_once_it_is_made(
    world: World, saver: SqliteCheckpointer, reads_only: bool
) -> None:
    tools = [effect(reads_only=reads_only)(tool(each)) for each in (book, pay)]
    steps = [Call("pay", {"card": SECRET})] * 2
    agent = tree(*steps, tools=tools, rules={"pay": "ask"})
    with Session(agent, saver) as session:
        answer_all(world, session, Decision("approve", scope="thread"))

        assert told(session, "mid") == [
            ['clerk asked the user: "May pay run?" The answer was: "approve"']
        ]


@pytest.mark.parametrize("said", ["approve", "reject: too dear"])
def test_approval_of_a_task_is_reported_to_superior_of_its_giver(
    world: World, saver: SqliteCheckpointer, said: str
) -> None:
    with Session(tree(rules={"clerk": "ask"}), saver) as session:
        answer_all(world, session, DECISIONS[said])

        assert told(session, "mid") == [[]]
        line = f'mid asked the user: "May clerk be given a task?" The answer was: "{said}"'
        assert told(session, "head") == [[line]]


def test_an_approval_of_a_task_outlives_the_questions_of_its_agent(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent = tree(Call("book", {"city": "Oslo"}), rules={"clerk": "ask", "mid": "ask"})
    with Session(agent, saver) as session:
        # The one for the root's own request is told to no agent.
        answer_all(world, session, "approve", "approve", "yes", "window")

        assert len(told(session, "mid")[0]) == 2
        assert told(session, "head") == [
            ['mid asked the user: "May clerk be given a task?" The answer was: "approve"']
        ]


def test_several_requests_at_once_are_reported_together(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "over"],
            "mid": [delegate_many(delegate("a", "go"), delegate("b", "go")), "done"],
            "a": [Call("pay", {"card": SECRET}), "paid"],
            "b": ["idle"],
        }
    )
    below = [Agent("a", tools=[pay]), Agent("b")]
    permissions = Permissions(approvals={"pay": "ask", "b": "ask"})
    agent = Agent(
        "head",
        model=model,
        subordinates=[Agent("mid", subordinates=below)],
        permissions=permissions,
    )
    with Session(agent, saver) as session:
        result = world.send(session, "go")
        assert len(result.questions) == 2
        assert world.answer(session, {each.id: "approve" for each in result.questions}).finished

        assert told(session, "mid") == [
            ['a asked the user: "May pay run?" The answer was: "approve"']
        ]
        assert told(session, "head") == [
            ['mid asked the user: "May b be given a task?" The answer was: "approve"']
        ]


@pytest.mark.parametrize("forged", [5, [{"question": 1}], [{"question": "May I?"}]], ids=repr)
@pytest.mark.parametrize("in_command", [False, True])
def test_a_tool_cannot_say_what_the_user_was_asked(
    world: World, saver: SqliteCheckpointer, forged: Any, in_command: bool
) -> None:
    @tool
    def look(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Look."""
        metadata = {USER_ANSWERS_KEY: forged, "of its own": 1}
        said = ToolMessage("seen", tool_call_id=tool_call_id, response_metadata=metadata)
        return Command(update={"messages": [said]}) if in_command else said

    with Session(tree(Call("look"), tools=[look]), saver) as session:
        answer_all(world, session)

        assert told(session, "mid") == [[]]
        [clerk] = [each for each in session.trace().walk() if each.agent == "clerk"]
        messages = session.thread_store.get(clerk.thread_id).messages
        [read] = [each for each in messages if isinstance(each, ToolMessage)]
    assert read.response_metadata == {"of its own": 1}


def test_texts_are_shortened_and_limited_in_number(world: World, saver: SqliteCheckpointer) -> None:
    def ask_much(times: int) -> str:
        """Ask."""
        return str([interrupt(f"{n} {'x' * 2 * MAX_LENGTH}") for n in range(times)])

    steps = [[Call("ask_much", {"times": MAX_SHOWN + 1}), Call("ask_much", {"times": 1})]]
    with Session(tree(*steps, tools=[ask_much]), saver) as session:
        result = world.send(session, "go")
        while result.questions:
            result = world.answer(session, {each.id: "y" * 600 for each in result.questions})

        [lines] = told(session, "mid")
        [response] = [
            DelegationResponse.load(each.artifact)
            for thread in session.thread_store.subordinates(session.thread_id)
            for each in session.thread_store.get(thread).messages
            if isinstance(each, ToolMessage)
        ]
    assert len(response.user_answers) == MAX_SHOWN + 1
    # The first of the one call is forgotten, and the other call is counted.
    assert lines[0].startswith('clerk asked the user: "1 x')
    assert lines[-1] == "the user was asked 1 times more"
    assert len(lines) == MAX_SHOWN + 1
    assert max(map(len, lines)) < 2 * MAX_LENGTH + 80
