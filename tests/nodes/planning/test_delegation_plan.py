"""Which thread of a subordinate a call goes on with, or starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from langchain_core.messages import AIMessage

from echelons.delegation.calls import SubordinateCall
from echelons.identity.lineage import Identity, derive_subordinate_thread_id
from echelons.identity.thread_history import Head
from echelons.nodes.planning.delegation_plan import choose_threads
from tests.notice_marks import without_marks

IDENTITY = Identity(agent="head", path=("head",), thread_id="root", tree="t")


def wanted(subordinate: str, call_id: str, reset: bool = False) -> SubordinateCall:
    return SubordinateCall(call_id, subordinate, "x", reset)


def resolved(
    *delegations: SubordinateCall, known: Mapping[str, Head] | None = None, **ways: str
) -> tuple[dict[str, str], dict[str, Head]]:
    message = AIMessage("", id="m")
    threads, heads = choose_threads(
        delegations, ways, known or {}, message, IDENTITY, lambda *_: False
    )
    return threads, without_marks(heads)


def started(call_id: str) -> str:
    """Return the id of the thread that a call starts."""
    return derive_subordinate_thread_id("root", "m", call_id)


def test_the_first_call_of_a_subordinate_starts_a_thread() -> None:
    assert resolved(wanted("eat", "1")) == (
        {"1": started("1")},
        {started("1"): {"agent": "eat"}},
    )


def test_each_further_task_of_a_message_starts_a_side_conversation() -> None:
    known = {"old": Head(agent="eat")}

    threads, heads = resolved(*[wanted("eat", each) for each in "123"], known=known)

    assert threads == {"1": "old", "2": started("2"), "3": started("3")}
    assert heads == {
        "old": {"agent": "eat"},
        started("2"): {"agent": "eat", "side": True},
        started("3"): {"agent": "eat", "side": True},
    }


def test_a_side_conversation_is_never_the_latest() -> None:
    known = {"long": Head(agent="eat"), "side": Head(agent="eat", side=True)}

    assert resolved(wanted("eat", "1"), known=known)[0] == {"1": "long"}


def test_a_task_beside_one_that_names_a_side_conversation_goes_on_with_the_latest() -> None:
    known = {"long": Head(agent="eat"), "side": Head(agent="eat", side=True)}
    named = replace(wanted("eat", "1"), thread_id="side")

    threads, heads = resolved(named, wanted("eat", "2"), wanted("eat", "3"), known=known)

    assert threads == {"1": "side", "2": "long", "3": started("3")}
    assert [head.get("side") for head in heads.values()] == [True, None, True]


def test_a_task_after_one_that_names_the_latest_conversation_starts_a_side_conversation() -> None:
    named = replace(wanted("eat", "1"), thread_id="long")

    threads, _ = resolved(named, wanted("eat", "2"), known={"long": Head(agent="eat")})

    assert threads == {"1": "long", "2": started("2")}


def test_two_tasks_that_name_one_conversation_share_its_thread() -> None:
    named = [replace(wanted("eat", each), thread_id="side") for each in "12"]

    threads, _ = resolved(*named, known={"side": Head(agent="eat", side=True)})

    assert threads == {"1": "side", "2": "side"}


def test_a_person_gets_all_tasks_of_a_message_on_one_thread() -> None:
    calls = [wanted("eat", each) for each in "abc"]

    threads, heads = choose_threads(
        calls, {}, {}, AIMessage("", id="m"), IDENTITY, lambda name, _: name == "eat"
    )

    assert set(threads.values()) == {started("a")}
    assert without_marks([*heads.values()]) == [{"agent": "eat"}]


def test_every_reset_starts_a_thread_of_its_own() -> None:
    threads, _ = resolved(wanted("eat", "1", reset=True), wanted("eat", "2", reset=True))

    assert threads == {"1": started("1"), "2": started("2")}


def test_a_call_after_a_reset_starts_a_side_conversation_beside_the_new_one() -> None:
    known = {"old": Head(agent="eat")}

    threads, heads = resolved(
        wanted("eat", "1"), wanted("eat", "2", reset=True), wanted("eat", "3"), known=known
    )
    later, _ = resolved(wanted("eat", "4"), known={**known, **heads})

    assert threads == {"1": "old", "2": started("2"), "3": started("3")}
    assert later == {"4": started("2")}


def test_a_call_goes_on_with_the_latest_of_its_subordinates_threads() -> None:
    known = {"a": Head(agent="eat"), "b": Head(agent="sleep"), "c": Head(agent="eat")}

    threads, heads = resolved(wanted("eat", "1"), wanted("sleep", "2"), known=known)

    assert threads == {"1": "c", "2": "b"}
    assert heads == {"c": known["c"], "b": known["b"]}


def test_what_is_passed_on_to_several_further_down_has_a_thread_for_each() -> None:
    calls = [wanted("eat", each) for each in ("a", "b", "c", "d")]
    threads, heads = resolved(*calls, a="chef", b="waiter", c="chef")

    assert len({*threads.values()}) == 4
    assert [*heads.values()] == [
        {"agent": "eat", "way": "chef"},
        {"agent": "eat", "way": "waiter"},
        {"agent": "eat", "way": "chef", "side": True},
        {"agent": "eat"},
    ]


def test_a_thread_that_passes_on_is_gone_on_with_by_what_is_for_the_same() -> None:
    known = {"t1": Head(agent="eat", way="chef"), "t2": Head(agent="eat")}
    calls = [wanted("eat", each) for each in ("a", "b")]
    threads, _ = resolved(*calls, known=known, a="chef")

    assert threads == {"a": "t1", "b": "t2"}
