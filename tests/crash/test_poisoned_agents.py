"""What is damaged of a spawned agent dismisses it, and costs no other: it fails closed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from echelons import Agent, EchelonsError, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from echelons.testing import Call, ScriptedModel
from echelons.tree.agent_registry import AgentRegistry, AgentState
from tests.proof import sample

CONFIG: Any = {"configurable": {"thread_id": "t"}}
STEP = sample(2, 1)
GONE = object()
SPECIFICATIONS: list[Any] = [None, 5, "x", [], {}, GONE]
FIELDS: dict[str, Sequence[Any]] = {
    "version": (0, 2, "1", True, None, GONE),
    "id": ("", "x", 5, "8ad11b83-0000-5000-8000-000000000000", GONE),
    "name": ("", "head", "scout", "../x", 5, GONE),
    "role": (5, "x" * 201, None, GONE),
    "kind": ("monitor", "human", "", 5, GONE),
    "levels": (-1, "9", 1.5, True, GONE),
    "keep": ("yes", 1, None, GONE),
    "contact_user": ("yes", 1, None, GONE),
    "tools": ("search", [5], {}, None, GONE),
    "profile": (5, None, GONE),
    "segment": (5, None, GONE),
    "newer": (1,),
}
STATUSES: list[Any] = [5, None, "x", "", [], {}, "Fulfilled", True]


def build_head() -> Agent:
    """Return a head that makes two agents, which it keeps, and then calls those it is told to."""

    def play(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        texts = [str(each.text) for each in messages if each.type == "tool"]
        if last.type == "tool":
            return f"read: {texts[-1]}"
        if last.text == "go":
            return [
                Call("spawn_subordinate", {"role": each, "message": "look", "keep": True})
                for each in ("scout", "clerk")
            ]
        return Call("call_subordinate", {"subordinate": str(last.text), "message": "again"})

    def work(messages: Sequence[BaseMessage]) -> str:
        tasks = [each for each in messages if each.type == "human"]
        return f"{tasks[-1].text}, after {len(tasks)} tasks"

    model = ScriptedModel({"head": play, "*": work})
    return Agent("head", model=model, permissions=Permissions(spawn=Spawn()))


@pytest.fixture
def saver() -> Iterator[SqliteCheckpointer]:
    """A database with a thread that has a scout and a clerk."""
    with SqliteCheckpointer(":memory:") as saver:
        Session(build_head(), saver, thread="t").send("go").result()
        yield saver


def open_session(saver: SqliteCheckpointer) -> Session:
    return Session(build_head(), saver, thread="t")


def find_names(session: Session) -> list[str]:
    """Return the names of the scout and of the clerk."""
    return sorted((each.name for each in session.registry().agents[1:]), reverse=True)


def poison(session: Session, name: str, change: Any) -> None:
    """Change the head of an agent's thread in the stored state of its superior."""
    graph = session.graph
    config: Any = {"configurable": {"thread_id": session.thread_id}}
    heads = graph.get_state(config).values["heads"]
    [(thread, head)] = [each for each in heads.items() if each[1]["agent"] == name]
    graph.update_state(config, {"heads": {thread: change(dict(head))}})


def check_dismissed(saver: SqliteCheckpointer, scout: str, clerk: str) -> None:
    """Check that the scout can be called no more, and that the clerk can."""
    session = open_session(saver)
    registry: AgentRegistry = session.registry()
    assert registry.get(f"head/{scout}").state is AgentState.DISMISSED
    assert registry.get(f"head/{clerk}").state is AgentState.DONE
    refused = session.send(scout).result().text
    assert "Error" in refused and "after" not in refused
    assert session.send(clerk).result().text.startswith("read: again, after ")


def set_field(head: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    changed = dict(head)
    if value is GONE:
        changed.pop(field)
    else:
        changed[field] = value
    return changed


@pytest.mark.parametrize("value", [each for each in SPECIFICATIONS if each is not GONE], ids=repr)
def test_an_agent_whose_specification_is_none_is_dismissed(
    saver: SqliteCheckpointer, value: Any
) -> None:
    session = open_session(saver)
    scout, clerk = find_names(session)
    poison(session, scout, lambda head: set_field(head, "spawned", value))

    check_dismissed(saver, scout, clerk)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{'gone' if value is GONE else repr(value)[:20]}")
        for number, (field, values) in enumerate(FIELDS.items())
        for value in values[number % STEP :: STEP] or values
    ],
)
def test_an_agent_whose_specification_is_damaged_in_one_field_is_dismissed(
    saver: SqliteCheckpointer, field: str, value: Any
) -> None:
    session = open_session(saver)
    scout, clerk = find_names(session)
    poison(
        session,
        scout,
        lambda head: {**head, "spawned": set_field(dict(head["spawned"]), field, value)},
    )

    check_dismissed(saver, scout, clerk)


@pytest.mark.parametrize("value", STATUSES, ids=repr)
def test_an_agent_whose_status_is_damaged_is_dismissed(
    saver: SqliteCheckpointer, value: Any
) -> None:
    session = open_session(saver)
    scout, clerk = find_names(session)
    poison(session, scout, lambda head: set_field(head, "status", value))

    check_dismissed(saver, scout, clerk)


def test_no_agent_takes_the_place_of_another_by_its_specification(
    saver: SqliteCheckpointer,
) -> None:
    session = open_session(saver)
    scout, clerk = find_names(session)
    heads = session.graph.get_state({"configurable": {"thread_id": session.thread_id}})
    [other] = [each for each in heads.values["heads"].values() if each["agent"] == clerk]
    poison(session, scout, lambda head: {**head, "spawned": other["spawned"]})

    states = {each.name: each.state for each in open_session(saver).registry().agents[1:]}

    # Which of the two is meant is not known any more.
    assert set(states.values()) == {AgentState.DISMISSED}


@pytest.mark.parametrize("damage", ["{", "5", '{"alias": 5}', '{"alias": "superior"}', "null"])
@pytest.mark.parametrize("kind", ["alias", "alias-name"])
def test_an_agent_whose_name_for_people_is_damaged_works_without_one(
    saver: SqliteCheckpointer, damage: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session(saver)
    scout, clerk = find_names(session)
    before = {each.name: each for each in session.registry().agents}
    key = build_key(session.thread_id, "alias", before[scout].id)
    if kind == "alias-name":
        key = f"alias-name//{before[scout].alias.casefold()}"
    with saver.cursor() as cursor:
        cursor.execute("UPDATE ledger_values SET value = ? WHERE key = ?", (damage, key))
        assert cursor.rowcount == 1

    session = open_session(saver)
    assert session.send(scout).result().text.startswith("read: again, after ")

    after = {each.name: each for each in session.registry().agents}
    assert (after[scout].alias, after[clerk].alias) == ("", before[clerk].alias)
    assert after[scout].state is AgentState.DONE
    assert f"{scout} gets no name for people" in caplog.text
    with pytest.raises(EchelonsError):
        session.registry().get(before[scout].alias)


def test_an_agent_at_work_whose_queued_specification_is_damaged_does_not_run_and_is_not_lost(
    saver: SqliteCheckpointer,
) -> None:
    def head(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return f"read: {messages[-1].text}"
        made = {"role": "asker", "message": "look", "contact_user": True}
        return Call("spawn_subordinate", made)

    def build() -> Session:
        ask = Call("ask_user", {"question": "which way?"})
        model = ScriptedModel({"head": head, "asker": [ask, "north"]})
        rules = Permissions(contact_user=True, spawn=Spawn())
        return Session(Agent("head", model=model, permissions=rules), saver, thread="asking")

    [question] = build().send("go").result().questions
    replace_bytes(saver, b"mortal", b"mortel")

    with pytest.raises(EchelonsError):
        build().answer({question.id: "yes"}).result()

    replace_bytes(saver, b"mortel", b"mortal")
    session = build()
    result = session.resume().result() if not session.inbox() else None
    if result is None:
        result = session.answer({question.id: "yes"}).result()
    assert re.match(r"read: north\n(.*\n)?asker-[0-9a-f]{8} is there", result.text)


def replace_bytes(saver: SqliteCheckpointer, old: bytes, new: bytes) -> None:
    """Replace bytes in every stored state."""
    with saver.cursor() as cursor:
        for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
            rows = cursor.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            for rowid, held in rows:
                if isinstance(held, bytes) and old in held:
                    cursor.execute(
                        f"UPDATE {table} SET {column} = ? WHERE rowid = ?",
                        (held.replace(old, new), rowid),
                    )
