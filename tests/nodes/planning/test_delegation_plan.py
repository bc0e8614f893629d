"""Which thread of a subordinate a call goes on with, or starts."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.messages import AIMessage

from echelons.delegation.calls import SubordinateCall
from echelons.identity.lineage import Identity, derive_subordinate_thread_id
from echelons.identity.thread_history import Head
from echelons.nodes.planning.delegation_plan import choose_threads

IDENTITY = Identity(agent="head", path=("head",), thread_id="root", tree="t")


def wanted(subordinate: str, call_id: str, reset: bool = False) -> SubordinateCall:
    return SubordinateCall(call_id, subordinate, "x", reset)


def resolved(
    *delegations: SubordinateCall, known: Mapping[str, Head] | None = None, **ways: str
) -> tuple[dict[str, str], dict[str, Head]]:
    return choose_threads(delegations, ways, known or {}, AIMessage("", id="m"), IDENTITY)


def started(call_id: str) -> str:
    """Return the id of the thread that a call starts."""
    return derive_subordinate_thread_id("root", "m", call_id)


def test_the_first_call_of_a_subordinate_starts_a_thread() -> None:
    assert resolved(wanted("eat", "1")) == (
        {"1": started("1")},
        {started("1"): {"agent": "eat"}},
    )


def test_a_second_call_of_one_message_goes_on_with_the_thread_of_the_first() -> None:
    threads, heads = resolved(wanted("eat", "1"), wanted("eat", "2"))

    assert threads == {"1": started("1"), "2": started("1")}
    assert list(heads) == [started("1")]


def test_every_reset_starts_a_thread_of_its_own() -> None:
    threads, _ = resolved(wanted("eat", "1", reset=True), wanted("eat", "2", reset=True))

    assert threads == {"1": started("1"), "2": started("2")}


def test_a_call_after_a_reset_goes_on_with_the_new_thread() -> None:
    known = {"old": Head(agent="eat")}

    threads, heads = resolved(
        wanted("eat", "1"), wanted("eat", "2", reset=True), wanted("eat", "3"), known=known
    )

    assert threads == {"1": "old", "2": started("2"), "3": started("2")}
    assert list(heads) == ["old", started("2")]


def test_a_call_goes_on_with_the_latest_of_its_subordinates_threads() -> None:
    known = {"a": Head(agent="eat"), "b": Head(agent="sleep"), "c": Head(agent="eat")}

    threads, heads = resolved(wanted("eat", "1"), wanted("sleep", "2"), known=known)

    assert threads == {"1": "c", "2": "b"}
    assert heads == {"c": known["c"], "b": known["b"]}


def test_what_is_passed_on_to_several_further_down_has_a_thread_for_each() -> None:
    calls = [wanted("eat", each) for each in ("a", "b", "c", "d")]
    threads, heads = resolved(*calls, a="chef", b="waiter", c="chef")

    assert threads["a"] == threads["c"]
    assert len({threads["a"], threads["b"], threads["d"]}) == 3
    assert [*heads.values()] == [
        {"agent": "eat", "way": "chef"},
        {"agent": "eat", "way": "waiter"},
        {"agent": "eat"},
    ]


def test_a_thread_that_passes_on_is_gone_on_with_by_what_is_for_the_same() -> None:
    known = {"t1": Head(agent="eat", way="chef"), "t2": Head(agent="eat")}
    calls = [wanted("eat", each) for each in ("a", "b")]
    threads, _ = resolved(*calls, known=known, a="chef")

    assert threads == {"a": "t1", "b": "t2"}
