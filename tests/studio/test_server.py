"""The two sample teams through LangGraph's local server, which is what Studio talks to.

All through its public client. The server forbids its event loop to block, and says so in its
log where something does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from langgraph_sdk.client import SyncLangGraphClient

from echelons import Session
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.threads.store import ThreadStore
from echelons.teams.travel.team import team

if TYPE_CHECKING:
    from tests.studio.conftest import Launch, Server

pytestmark = pytest.mark.studio

TASK = "Book a table for 2 at Trattoria Anna Maria in Bologna on Friday at 8 pm"
CONFIRMED = "Confirmed by a human: a table for 2 at Trattoria Anna Maria, Friday at 8 pm."


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with server.client() as client:
        yield client


@pytest.fixture(autouse=True)
def calm(server: Server) -> Iterator[None]:
    yield
    assert "BlockingError" not in server.log
    assert "[error" not in server.log
    assert "Traceback" not in server.log


def said(text: str) -> dict[str, Any]:
    """Return a human's message as a run's input."""
    return {"messages": [{"role": "user", "content": text}]}


def ask(client: SyncLangGraphClient) -> str:
    """Let the travel team run until it asks, and return the thread's id."""
    thread_id = client.threads.create()["thread_id"]
    client.runs.wait(thread_id, "travel", input=said(TASK))
    return thread_id


def levels(state: Any) -> Iterator[Any]:
    """Yield a state and those of the graphs at work below it."""
    yield state
    for task in state["tasks"]:
        if task.get("state"):
            yield from levels(task["state"])


def texts(values: Any) -> list[str]:
    return [message["content"] for message in values["messages"]]


def test_both_teams_are_assistants(client: SyncLangGraphClient) -> None:
    found = client.assistants.search()

    assert {each["graph_id"] for each in found} == {"travel", "research"}
    assert all(each["description"] for each in found)


def test_the_drawing_shows_the_organisation(client: SyncLangGraphClient) -> None:
    drawn = client.assistants.get_graph("travel", xray=True)

    nodes = {str(node["id"]) for node in drawn["nodes"]}
    assert "delegate:flights:act" in nodes
    assert "delegate:experiences:delegate:restaurants:act" in nodes
    assert "delegate:experiences:act" not in nodes


def test_every_agent_is_a_subgraph(client: SyncLangGraphClient) -> None:
    [travel] = client.assistants.search(graph_id="travel")
    below = client.assistants.get_subgraphs(travel["assistant_id"], recurse=True)

    assert {"delegate", "delegate|experiences", "delegate|experiences|delegate|tours"} <= set(below)
    assert "messages" in str(below["delegate|experiences|delegate|tours"])


def test_streams_say_which_agent_speaks(client: SyncLangGraphClient) -> None:
    thread_id = client.threads.create()["thread_id"]

    parts = client.runs.stream(
        thread_id, "travel", input=said(TASK), stream_mode="updates", stream_subgraphs=True
    )

    namespaces = {part.event for part in parts}
    agents = {tuple(name.split(":")[0] for name in event.split("|")[1:]) for event in namespaces}
    assert ("delegate", "experiences", "delegate", "restaurants") in agents


def test_a_question_in_the_third_level_is_seen_and_answered(client: SyncLangGraphClient) -> None:
    thread_id = ask(client)

    thread = client.threads.get(thread_id)
    assert thread["status"] == "interrupted"
    [[question]] = thread["interrupts"].values()
    assert "Trattoria Anna Maria" in str(question["value"])
    *_, restaurants = levels(client.threads.get_state(thread_id, subgraphs=True))
    assert restaurants["next"] == ["act"]
    assert restaurants["metadata"]["agent_path"] == "head/experiences/restaurants"
    [call] = restaurants["values"]["messages"][-1]["tool_calls"]
    assert call["name"] == "reserve_table"

    values = client.runs.wait(thread_id, "travel", command={"resume": {question["id"]: "yes"}})

    assert CONFIRMED in texts(values)[-1]
    assert client.threads.get(thread_id)["status"] == "idle"
    history = client.threads.get_history(thread_id)
    assert [state["next"] for state in history][:2] == [[], ["reason"]]


def test_a_finished_subordinate_is_found_through_the_history(client: SyncLangGraphClient) -> None:
    thread_id = client.threads.create()["thread_id"]
    client.runs.wait(thread_id, "travel", input=said("Flights from London to Rome"))

    called = called_in(client, thread_id)
    flights = called_in(client, thread_id, called)

    state: Any = client.threads.get_state(thread_id, checkpoint=flights)
    assert state["metadata"]["agent_path"] == "head/flights"
    assert "Ciampino" in texts(state["values"])[-1]


def called_in(client: SyncLangGraphClient, thread_id: str, graph: Any = None) -> Any:
    """Return where the graph is that a step in the history of another ran."""
    [called] = (
        task["checkpoint"]
        for state in client.threads.get_history(thread_id, checkpoint=graph)
        for task in state["tasks"]
        if task["checkpoint"]
    )
    return called


def test_the_library_reads_what_the_server_stored(
    client: SyncLangGraphClient, server: Server
) -> None:
    thread_id = ask(client)

    with Session(team(), server.database, thread=thread_id) as session:
        [question] = session.inbox()
        assert question.path == "head/experiences/restaurants"
        assert all(link.holds for link in session.thread_store.verify(thread_id))
        assert CONFIRMED in session.answer(question.id, "yes").result().text


def test_the_server_goes_on_with_what_the_library_stored(
    client: SyncLangGraphClient, server: Server
) -> None:
    name = f"trip {uuid.uuid4()}"
    with Session(team(), server.database, thread=name) as session:
        session.send(TASK).result()
        thread_id = session.thread_id

    client.threads.create(thread_id=thread_id, graph_id="travel", if_exists="do_nothing")
    state: Any = client.threads.get_state(thread_id, subgraphs=True)

    assert texts(state["values"])[0] == TASK
    assert state["metadata"]["thread_name"] == name
    assert [level["metadata"]["agent"] for level in levels(state)][-1] == "restaurants"
    values = client.runs.wait(thread_id, "travel", command={"resume": "no"})
    assert "Declined by a human" in texts(values)[-1]


def test_a_state_is_changed_by_hand_below_the_root(client: SyncLangGraphClient) -> None:
    thread_id = ask(client)
    *_, restaurants = levels(client.threads.get_state(thread_id, subgraphs=True))
    [call] = restaurants["values"]["messages"][-1]["tool_calls"]
    answer = {"role": "tool", "tool_call_id": call["id"], "content": "The house is closed."}

    client.threads.update_state(
        thread_id, {"messages": [answer]}, as_node="act", checkpoint=restaurants["checkpoint"]
    )
    values = client.runs.wait(thread_id, "travel", input=None)

    assert "The house is closed." in texts(values)[-1]


def test_a_past_state_is_run_again(client: SyncLangGraphClient) -> None:
    thread_id = ask(client)
    client.runs.wait(thread_id, "travel", command={"resume": "yes"})
    before = next(
        state for state in client.threads.get_history(thread_id) if state["next"] == ["delegate"]
    )

    client.runs.wait(thread_id, "travel", input=None, checkpoint=before["checkpoint"])
    values = client.runs.wait(thread_id, "travel", command={"resume": "no"})

    assert "Declined by a human" in texts(values)[-1]


def test_a_copied_thread_goes_its_own_way(client: SyncLangGraphClient, server: Server) -> None:
    thread_id = ask(client)

    # Its type says that it returns nothing.
    copy_of = cast("Callable[[str], Any]", client.threads.copy)
    copied = copy_of(thread_id)["thread_id"]

    values = client.runs.wait(copied, "travel", command={"resume": "no"})
    assert "Declined by a human" in texts(values)[-1]
    assert client.threads.get_state(thread_id)["next"] == ["delegate"]
    with SqliteCheckpointer(server.database) as saver:
        links = ThreadStore(saver).verify(copied)
    assert links
    assert all(link.holds for link in links)


def test_a_run_that_is_deleted_takes_what_it_stored_with_it(
    client: SyncLangGraphClient, server: Server
) -> None:
    thread_id = client.threads.create()["thread_id"]
    before: Any = client.runs.wait(thread_id, "travel", input=said("Flights from London to Rome"))
    run = client.runs.create(thread_id, "travel", input=said(TASK))
    client.runs.join(thread_id, run["run_id"])

    client.runs.delete(thread_id, run["run_id"])

    with SqliteCheckpointer(server.database) as saver:
        assert not [*saver.list(None, filter={"run_id": run["run_id"]})]
    state: Any = client.threads.get_state(thread_id)
    assert state["values"]["messages"] == before["messages"]
    assert state["next"] == []


def test_a_deleted_thread_is_gone_from_the_database(
    client: SyncLangGraphClient, server: Server
) -> None:
    thread_id = ask(client)

    client.threads.delete(thread_id)

    with SqliteCheckpointer(server.database) as saver:
        for table in ("checkpoints", "writes", "events"):
            found = f"SELECT 1 FROM {table} WHERE thread_id = ?"
            assert saver.conn.execute(found, (thread_id,)).fetchone() is None


def test_the_research_team_answers_from_the_folder_that_is_named(
    client: SyncLangGraphClient,
) -> None:
    values = client.runs.wait(None, "research", input=said("Which bird flies from pole to pole?"))

    assert "terns.md" in texts(values)[-1]


def test_what_a_caller_configures_is_not_stored_with_the_checkpoints(
    client: SyncLangGraphClient, server: Server
) -> None:
    secret = f"sk-{uuid.uuid4()}"

    client.runs.wait(
        None, "travel", input=said("Hello"), config={"configurable": {"api_key": secret}}
    )

    stored = (path.read_bytes() for path in server.folder.glob("threads.sqlite*"))
    assert not any(secret.encode() in content for content in stored)


def test_the_server_finds_nothing_missing_in_the_checkpointer(server: Server) -> None:
    assert "Using custom checkpointer: SqliteCheckpointer" in server.log
    assert "Custom checkpointer missing" not in server.log


def test_a_server_ends_cleanly_and_the_next_goes_on(launch: Launch, tmp_path: Path) -> None:
    with launch(tmp_path) as first:
        with first.client() as client:
            thread_id = ask(client)
        assert first.stop() == 0
        left = {path.name for path in tmp_path.iterdir()}

    with launch(tmp_path) as second, second.client() as client:
        client.threads.create(thread_id=thread_id, graph_id="travel", if_exists="do_nothing")
        values = client.runs.wait(thread_id, "travel", command={"resume": "yes"})

    assert CONFIRMED in texts(values)[-1]
    # The write-ahead log is gone: the database was closed.
    assert left == {"echelons", "langgraph.json", "log", "threads.sqlite", ".langgraph_api"}
