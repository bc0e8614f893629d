"""Threads are read back from any saver, without the graph that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from echelons import Agent, DelegationPolicy, Session, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.thread_events import EventKind
from echelons.errors import CheckpointTampered, ThreadNotFound
from echelons.testing import Call, ScriptedModel, delegate

# Many of these sessions are on a saver whose ledger is in memory, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")

TASK: Any = {"messages": [("user", "plan")]}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def team(*last: Any) -> Agent:
    """Return a tree of three levels."""
    model = ScriptedModel(
        {
            "head": [delegate("days", "one day"), "planned"],
            "days": [[delegate("eat", "dinner"), delegate("walk", "a walk")], "day done"],
            "eat": [*(last or ["pizza"])],
            "walk": ["the forum"],
        }
    )
    days = Agent("days", subordinates=[Agent("eat", tools=[ask]), Agent("walk")])
    return Agent("head", model=model, subordinates=[days])


@pytest.fixture(params=["ours", "memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each kind of saver in turn."""
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "ours":
        with SqliteCheckpointer(":memory:") as opened:
            yield opened
    else:
        with SqliteSaver.from_conn_string(":memory:") as plain:
            yield plain


@pytest.fixture
def store(saver: Any) -> ThreadStore:
    """The threads of a tree that has run one turn."""
    team().compile(saver).invoke(TASK, config())
    return ThreadStore(saver)


def found(store: ThreadStore, *way: str) -> Any:
    """Return the thread of the agent that stands at the end of a way down from the root."""
    thread = "t"
    for agent in way:
        [thread] = [each for each in store.subordinates(thread) if store.get(each).agent == agent]
    return store.get(thread)


def test_a_thread_is_one_agents_conversation(store: ThreadStore) -> None:
    eat = found(store, "days", "eat")

    assert [(each.type, each.text) for each in eat.messages] == [
        ("human", "dinner"),
        ("ai", "pizza"),
    ]
    assert (eat.agent, eat.path) == ("eat", "head/days/eat")
    assert (eat.root_thread_id, eat.segments, eat.name) == ("t", 1, "")
    assert eat.superior_thread_id == found(store, "days").id


def test_the_root_is_a_thread_too(store: ThreadStore) -> None:
    root = store.get("t")

    assert [each.text for each in root.messages] == ["plan", "", "day done", "planned"]
    assert (root.id, root.superior_thread_id, root.path) == ("t", "", "head")


def test_subordinates_are_the_threads_that_calls_started_in_their_order(store: ThreadStore) -> None:
    days = found(store, "days")

    assert [store.get(each).agent for each in store.subordinates(days.id)] == ["eat", "walk"]
    assert store.subordinates(found(store, "days", "eat").id) == ()


def test_events_are_what_happened_oldest_first(store: ThreadStore) -> None:
    kinds = [each.kind for each in store.events("t")]

    assert kinds == [
        EventKind.MESSAGE,
        EventKind.MESSAGE,
        EventKind.DELEGATION,
        EventKind.MESSAGE,
        EventKind.MESSAGE,
    ]


def test_a_thread_that_was_continued_is_one_conversation_of_several_segments(saver: Any) -> None:
    for _ in range(3):
        team().compile(saver).invoke(TASK, config())

    days = found(ThreadStore(saver), "days")

    assert days.segments == 3
    assert [each.text for each in days.messages if each.type == "human"] == ["one day"] * 3
    assert found(ThreadStore(saver), "days", "eat").segments == 3


def test_the_segments_of_a_thread_are_read_in_the_order_in_which_they_ran(saver: Any) -> None:
    def counted(messages: Any) -> str:
        return f"{len(messages)} messages"

    model = ScriptedModel({"head": [delegate("eat", "dinner"), "end"], "eat": counted})
    graph = Agent("head", guidance="", model=model, subordinates=[Agent("eat")]).compile(saver)
    for _ in range(3):
        graph.invoke(TASK, config())

    texts = [each.text for each in found(ThreadStore(saver), "eat").messages]
    assert texts == ["dinner", "1 messages", "dinner", "3 messages", "dinner", "5 messages"]


def test_a_thread_is_read_while_it_waits(saver: Any) -> None:
    graph = team(Call("ask", {"question": "Sure?"}), "thanks").compile(saver)
    graph.invoke(TASK, config())
    store = ThreadStore(saver)

    assert [each.type for each in found(store, "days", "eat").messages] == ["human", "ai"]
    assert [each.text for each in found(store, "days", "walk").messages][-1] == "the forum"
    graph.invoke(Command(resume="yes"), config())
    assert [each.type for each in found(store, "days", "eat").messages] == [
        "human",
        "ai",
        "tool",
        "ai",
    ]


def test_a_look_up_in_one_tree_finds_nothing_of_another(saver: Any) -> None:
    for root in ("t", "other"):
        team().compile(saver).invoke(TASK, config(root))
    store = ThreadStore(saver)
    [days] = store.subordinates("t")

    assert store.get(days).root_thread_id == "t"
    assert store.get(days, "t").id == days
    with pytest.raises(ThreadNotFound):
        store.get(days, "other")


@pytest.mark.parametrize("given", [None, 5, {"t": 1}, ["t"]])
async def test_an_id_that_is_no_text_is_that_of_no_thread(given: Any) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        store = ThreadStore(saver)
        with pytest.raises(ThreadNotFound):
            store.get(given)
        with pytest.raises(ThreadNotFound):
            await store.aget(given)


def test_a_thread_that_is_listed_and_has_not_begun_is_empty(saver: Any) -> None:
    graph = team().compile(saver)
    graph.invoke(TASK, config(), interrupt_before=["delegate"])
    store = ThreadStore(saver)
    [days] = store.subordinates("t")

    for thread in (store.get(days), store.get(days, "t")):
        assert (thread.agent, thread.path) == ("days", "head/days")
        assert (thread.root_thread_id, thread.superior_thread_id) == ("t", "t")
        assert (thread.messages, thread.events, thread.segments) == ((), (), 0)
        assert thread.latest is None
    assert [str(link.state) for link in store.verify("t")] == ["not_started"]
    with pytest.raises(ThreadNotFound):
        store.get(days, "other")

    graph.invoke(None, config())
    assert (store.get(days).segments, store.get(days).id) == (1, days)


@pytest.mark.parametrize("saver", ["ours", "memory"], indirect=True)
async def test_a_thread_that_has_not_begun_is_found_in_an_event_loop(saver: Any) -> None:
    for thread in ("other", "t"):
        team().compile(saver).invoke(TASK, config(thread), interrupt_before=["delegate"])
    store = ThreadStore(saver)
    [days] = await store.asubordinates("t")

    assert await store.aget(days) == store.get(days)
    assert await store.aevents(days) == ()


def test_a_refused_call_has_an_empty_thread(saver: Any) -> None:
    model = ScriptedModel({"head": [delegate("", "dinner"), "sorry"]})
    eat = Agent("eat", capabilities={"dinner": 1.0})
    floor = Agent("floor", subordinates=[Agent("wing", subordinates=[eat])])
    few = DelegationPolicy(max_hops=1)
    head = Agent("head", model=model, subordinates=[floor], delegation=few)
    head.compile(saver).invoke(TASK, config())
    store = ThreadStore(saver)

    [thread] = [store.get(each) for each in store.subordinates("t")]
    assert (thread.path, thread.messages) == ("head/floor", ())


def test_the_roots_are_listed_latest_first(saver: Any) -> None:
    for name in ("Rome", "Oslo", "Rome"):
        Session(team(), saver, thread=name).send("plan").result()

    roots = ThreadStore(saver).roots()

    assert [(each.name, each.turns, each.agent) for each in roots] == [
        ("Rome", 2, "head"),
        ("Oslo", 1, "head"),
    ]
    assert roots[0].updated_at > roots[1].updated_at
    assert ThreadStore(saver).get(roots[0].id).name == "Rome"


def test_each_call_in_the_events_names_its_answer_and_the_answer_its_call(saver: Any) -> None:
    graph = team(Call("ask", {"question": "Sure?"}), "ok").compile(saver)
    graph.invoke(TASK, config())
    store = ThreadStore(saver)

    days = {each.key: each for each in store.events(store.subordinates("t")[0])}
    asked, told = (each for each in days.values() if each.kind is EventKind.DELEGATION)
    assert asked.paired_with == ""
    assert days[told.paired_with].data["tool_call_id"] == told.data["call_id"]
    assert days[told.paired_with].paired_with == told.key

    graph.invoke(Command(resume="yes"), config())
    for thread in ("t", *(link.sub_agent_thread_id for link in store.verify("t"))):
        events = {each.key: each for each in store.events(thread)}
        calls = [each for each in events.values() if "call_id" in each.data]
        assert all(events[each.paired_with].paired_with == each.key for each in calls)


def test_the_metadata_of_a_root_are_its_callers_alone(saver: Any) -> None:
    with Session(team(), saver, thread="Rome", metadata={"team": "travel", "steps": 3}) as session:
        session.send("plan").result()
    given: Any = {**config(), "metadata": {"mine": 1, "langgraph_host": "self"}, "tags": ["x"]}
    team().compile(saver).invoke(TASK, given)

    plain, rome = ThreadStore(saver).roots()

    assert rome.metadata == {"team": "travel", "steps": 3}
    assert plain.metadata == {"mine": 1}


DAMAGES = {
    "its input": "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 't'",
    "its writes": "UPDATE writes SET value = x'c1' WHERE thread_id = 't'",
    "its state": """UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 't' AND
        json_extract(metadata, '$.source') <> 'input'""",
}


def damage(saver: SqliteCheckpointer, how: str) -> ThreadStore:
    """Return the threads of three trees that ask, of which that of thread `t` is damaged."""
    for thread in ("first", "t", "last"):
        ask_first = team(Call("ask", {"question": "Sure?"}), "ok")
        ask_first.compile(saver).invoke(TASK, config(thread))
    saver.conn.execute(DAMAGES[how])
    saver.conn.commit()
    return ThreadStore(saver)


@pytest.mark.parametrize("how", ["its input", "its writes"])
async def test_a_damaged_thread_is_listed_as_damaged_and_hides_no_other(how: str) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        store = damage(saver, how)

        roots = store.roots()
        assert [each.id for each in roots] == ["last", "first", "t"]
        assert [bool(each.damage) for each in roots] == [False, False, True]
        assert "is not what was stored" in roots[-1].damage
        assert await store.aroots() == roots
        with pytest.raises(CheckpointTampered):
            store.trace("t")
        [days] = store.subordinates("first")
        assert store.get(days, "first").agent == "days"


async def test_a_root_whose_rows_are_whole_is_listed_with_them_though_others_are_damaged() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        for thread in ("t", "last"):
            given: Any = {**config(thread), "metadata": {"thread_name": f"{thread}'s name"}}
            team(Call("ask", {"question": "Sure?"}), "ok").compile(saver).invoke(TASK, given)
        store = ThreadStore(saver)
        lost_before, before = store.roots()
        saver.conn.execute(
            "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 't'"
            " AND checkpoint_ns <> ''"
        )
        saver.conn.execute(
            "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'last'"
            " AND checkpoint_ns = '' AND json_extract(metadata, '$.source') = 'input'"
        )
        saver.conn.commit()

        whole, lost = store.roots()

        assert "is not what was stored" in whole.damage and lost.damage
        assert replace(whole, damage="") == before and before.turns == 1 and before.updated_at
        assert (lost.id, lost.name, lost.turns) == (lost_before.id, "", 0)
        assert await store.aroots() == [whole, lost]


@pytest.mark.parametrize("how", DAMAGES)
async def test_the_inbox_has_the_questions_of_all_threads_but_the_damaged(how: str) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        store = damage(saver, how)

        inbox = store.inbox()
        asked = {each.root.id: [question.value for question in each.questions] for each in inbox}
        assert asked == {"last": ["Sure?"], "t": [], "first": ["Sure?"]}
        assert [each.root.id for each in inbox if each.root.damage] == ["t"]
        assert await store.ainbox() == inbox


async def test_the_inbox_of_any_saver_has_each_question_under_its_thread(saver: Any) -> None:
    for thread in ("asks", "asks too"):
        ask_first = team(Call("ask", {"question": f"{thread}?"}), "ok")
        Session(ask_first, saver, thread=thread).send("plan").result()
    Session(team(), saver, thread="done").send("plan").result()
    store = ThreadStore(saver)

    inbox = store.inbox()

    assert [(each.root.name, each.questions[0].value) for each in inbox] == [
        ("asks too", "asks too?"),
        ("asks", "asks?"),
    ]
    assert inbox[0].questions[0].path == "head/days/eat"
    if isinstance(saver, (SqliteCheckpointer, InMemorySaver)):
        assert await store.ainbox() == inbox


def test_an_empty_database_has_no_threads(saver: Any) -> None:
    assert ThreadStore(saver).roots() == []
    assert ThreadStore(saver).inbox() == []


@pytest.mark.parametrize("method", ["get", "events", "subordinates", "trace", "verify"])
async def test_a_thread_that_is_not_there_is_refused_by_name(saver: Any, method: str) -> None:
    store = ThreadStore(saver)

    with pytest.raises(ThreadNotFound) as refused:
        getattr(store, method)("nowhere")
    if not isinstance(saver, SqliteSaver) or isinstance(saver, SqliteCheckpointer):
        with pytest.raises(ThreadNotFound):
            await getattr(store, f"a{method}")("nowhere")

    assert refused.value.thread == "nowhere"
    for part in ("'nowhere'", "ThreadStore.roots()"):
        assert part in str(refused.value)


@pytest.mark.parametrize("saver", ["ours", "memory"], indirect=True)
async def test_every_method_has_a_twin_that_finds_the_same(saver: Any, store: ThreadStore) -> None:
    assert await store.aroots() == store.roots()
    assert await store.aget("t") == store.get("t")
    assert await store.aevents("t") == store.events("t")
    assert await store.asubordinates("t") == store.subordinates("t")
    assert await store.atrace("t") == store.trace("t")
    assert await store.averify("t") == store.verify("t")


def test_the_trace_is_the_whole_tree(store: ThreadStore) -> None:
    trace = store.trace("t")

    assert [each.agent for each in trace.walk()] == ["head", "days", "eat", "walk"]
    assert [each.status for each in trace.walk()] == ["root", *["fulfilled"] * 3]
    assert all(link.holds for link in store.verify("t"))
    assert len(store.verify("t")) == 3
