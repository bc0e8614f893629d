"""The mailbox: what is counted, what a branch sees, and what happens to it with its thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.mailbox import (
    StoredMail,
    add_mail,
    add_numbers,
    check_room,
    mark_read,
)
from echelons.checkpoints.coordination.records import build_branch, plan_moves, read_branch
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.maintenance.retention_policies import KeepLatest
from echelons.checkpoints.queries import run_plan
from echelons.features.mail.guard import TreeMailboxes
from tests.error_codes import raises_code

PATH = "head/north"


def send(saver: SqliteCheckpointer, text: str, after: str = "", path: str = PATH) -> int:
    mail = StoredMail("the user", text, "2026-11-23T07:00:00+00:00", after)

    def add(open_: Transaction) -> int:
        check_room(open_, "t", path)
        return add_mail(open_, "t", path, mail)

    return saver.ledger.commit(add)


def config(root: str, thread: str = "north-1") -> Mapping[str, Any]:
    return {
        "metadata": {"agent_path": PATH, "agent_thread_id": thread},
        "configurable": {
            "checkpoint_map": {"": root},
            "checkpoint_ns": thread,
            "__pregel_task_id": "task",
        },
    }


def read(saver: SqliteCheckpointer, root: str, thread: str = "north-1") -> list[str]:
    return [each.text for each in TreeMailboxes(saver, "t").read(config(root, thread))]


def checkpoint(saver: SqliteCheckpointer, own: str, above: str | None = None) -> None:
    given = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": above}
    saver.put({"configurable": given}, {**empty_checkpoint(), "id": own}, {}, {})


def mark(saver: SqliteCheckpointer, after: str, *numbers: int) -> None:
    saver.ledger.commit(lambda open_: mark_read(open_, "t", PATH, after, numbers))


def test_messages_are_read_in_the_order_in_which_they_were_sent_until_they_are_marked() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        for each in ("one", "two", "three"):
            send(saver, each)
        send(saver, "not for north", path="head")

        assert read(saver, "1") == ["one", "two", "three"]
        mark(saver, "1", 1, 2)
        assert read(saver, "1") == ["three"]


def test_message_reaches_only_first_thread_of_an_agent() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        send(saver, "one")
        boxes = TreeMailboxes(saver, "t")

        assert [each.text for each in boxes.read(config("1", "a"))] == ["one"]
        assert boxes.read(config("1", "b")) == []


def test_undelivered_message_of_one_thread_is_not_hidden_by_another() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        send(saver, "one")
        boxes = TreeMailboxes(saver, "t")

        told = [[each.text for each in boxes.read(config("c1", f"north-{n}"))] for n in (1, 2, 1)]

        assert told == [["one"], [], ["one"]]


def test_what_is_sent_while_an_agent_looks_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        boxes, query = TreeMailboxes(saver, "t"), saver.ledger.query

        def look_and_send(look: Any) -> Any:
            found = query(look)
            monkeypatch.undo()
            send(saver, "one")
            saver.ledger.query(boxes.refresh)
            return found

        monkeypatch.setattr(saver.ledger, "query", look_and_send)
        assert boxes.read(config("c1")) == []

        assert [each.text for each in boxes.read(config("c1"))] == ["one"]


def test_another_thread_reads_message_of_a_failed_reply() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        send(saver, "one")
        boxes = TreeMailboxes(saver, "t")
        for failed, expected in ((False, []), (True, ["one"])):
            boxes.read(config("1", "a"))
            boxes.begin_reply(config("1", "a"), lambda _: None)
            boxes.end_reply(config("1", "a"), has_failed=failed)

            assert [each.text for each in boxes.read(config("1", "b"))] == expected


def test_a_fork_has_not_read_what_was_sent_or_read_after_its_checkpoint() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        checkpoint(saver, "1")
        send(saver, "before the first", "")
        send(saver, "at the first", "1")
        checkpoint(saver, "2", "1")
        send(saver, "at the second", "2")
        mark(saver, "2", 1, 2, 3)
        checkpoint(saver, "3", "2")
        checkpoint(saver, "4", "1")  # a fork
        send(saver, "to the fork", "4")

        assert read(saver, "3") == []
        assert read(saver, "4") == ["before the first", "to the fork"]
        # Checkpoint 5 is not stored, and goes on from the latest.
        assert read(saver, "5") == ["before the first", "to the fork"]


def test_what_was_sent_before_a_pruned_checkpoint_is_still_seen() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        checkpoint(saver, "3", "2")
        checkpoint(saver, "4", "3")
        branch = run_plan(saver, read_branch("t", "4"))

        assert [branch.sees(each) for each in ("", "1", "3", "4", "5")] == [True] * 4 + [False]


def forked(saver: SqliteCheckpointer) -> None:
    """Read a message on an abandoned branch, and send one there."""
    checkpoint(saver, "1")
    send(saver, "to both", "1")
    checkpoint(saver, "2", "1")
    send(saver, "to the abandoned", "2")
    mark(saver, "2", 1)
    checkpoint(saver, "3", "2")
    checkpoint(saver, "4", "1")
    checkpoint(saver, "5", "4")


def test_a_pruned_fork_has_neither_read_nor_been_sent_what_an_abandoned_branch_has() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        forked(saver)
        before = read(saver, "5")

        saver.prune(["t"])

        # To the first branch that left it, "2", was it sent.
        assert (read(saver, "5"), before) == ([], [])
        send(saver, "to the fork", "5")
        assert read(saver, "5") == ["to the fork"]


def test_a_pruned_branch_keeps_what_it_has_read() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        checkpoint(saver, "1")
        send(saver, "one", "1")
        send(saver, "two", "1")
        checkpoint(saver, "2", "1")
        mark(saver, "2", 1)
        checkpoint(saver, "3", "2")
        for _ in range(2):
            saver.prune(["t"])

            assert read(saver, "3") == ["two"]
        checkpoint(saver, "4", "3")
        saver.prune(["t"])
        assert read(saver, "4") == ["two"]


def test_what_is_dropped_with_a_branch_takes_no_room() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        checkpoint(saver, "1")
        checkpoint(saver, "2", "1")
        for number in range(1000):
            send(saver, str(number), "2")
        checkpoint(saver, "3", "1")

        saver.prune(["t"])

        assert send(saver, "one more", "3") == 1001
        assert read(saver, "3") == ["one more"]


def test_counting_what_would_be_pruned_moves_no_mail() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        forked(saver)
        before = saver.ledger.query(lambda open_: {k: open_.get(k) for k in open_.list_keys()})

        saver.retain(["t"], KeepLatest(), dry_run=True)

        after = saver.ledger.query(lambda open_: {k: open_.get(k) for k in open_.list_keys()})
        assert before == after


@given(st.data())
def test_no_branch_that_is_kept_sees_anything_else_after_a_prune(data: st.DataObject) -> None:
    """Any branches, of one of which any checkpoints are kept."""
    names = [str(number) for number in range(1, data.draw(st.integers(2, 9)))]
    parents: dict[str, str | None] = {names[0]: None}
    for number, name in enumerate(names[1:], 1):
        parents[name] = names[data.draw(st.integers(0, number - 1))]
    end = above = names[-1]
    kept = {end}
    while next_one := parents[above]:
        above = next_one
        kept |= {above} if data.draw(st.booleans()) else set()
    before = build_branch(parents, end)

    moves = plan_moves(parents, kept, names)

    then = build_branch({each: above for each, above in parents.items() if each in kept}, end)
    for name in parents:
        place = moves.get(name, name)
        assert (place is not None and then.sees(place)) == before.sees(name), (name, place)


def test_a_receiver_has_a_thousand_unread_messages_at_most() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        for number in range(1000):
            send(saver, str(number))

        with raises_code("mailbox_full", match="1000 unread"):
            send(saver, "one more")
        assert send(saver, "to another", path="head") == 1
        mark(saver, "1", 5)
        assert send(saver, "one more") == 1001


def test_a_copy_has_the_mail_and_a_deleted_thread_has_none() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        checkpoint(saver, "1")
        send(saver, "one")
        send(saver, "two")
        mark(saver, "1", 1)

        saver.copy_thread("t", "copy")
        saver.delete_thread("t")

        assert read(saver, "1") == []
        copied = TreeMailboxes(saver, "copy").read(config("1"))
        assert [each.text for each in copied] == ["two"]


def test_numbers_are_kept_as_ranges() -> None:
    assert add_numbers([], [1, 2, 4]) == [[1, 2], [4, 4]]
    assert add_numbers([[1, 2], [4, 4]], [3]) == [[1, 4]]
    assert add_numbers([[1, 4]], [2]) == [[1, 4]]
