"""Whatever those below do, however they are asked and wherever they stand, a superior is told what
the rules say: every combination is played by real trees and by a reference in plain Python."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle, pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.proof import sample
from tests.scenarios.reference import Asking, Case, Deed, Post
from tests.scenarios.staging import Stage, assert_agreement

STATUSES = ("fulfilled", "partial", "unable", "needs_input")
TROUBLES = ("spent", "failed", "late")
OPEN = "open"
EVERY = (*STATUSES, *TROUBLES, OPEN)
SURE = (50, 57, 55)
"""How sure who reports says it is: of equals in all else, the second is preferred."""
NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Failures are told to whoever reads the log, with their traces, and there are thousands."""
    caplog.set_level(logging.CRITICAL, "echelons.identity.failures")


@pytest.fixture(params=["sync", "async"])
def sync(request: pytest.FixtureRequest) -> bool:
    """In threads, or in an event loop."""
    return bool(request.param == "sync")


def flat(width: int) -> Post:
    """Return a superior and so many below it, in the order in which they fit."""
    return Post("head", tuple(Post(name, sure=90 - n) for n, name in enumerate(NAMES[:width])))


def deep(depth: int) -> Post:
    """Return a superior above ``a``, so many levels down, and ``b``, one less or one."""
    branches = (("a", depth, 90), ("b", max(1, depth - 1) if depth % 2 else 1, 79))
    return Post("head", tuple(chain(name, levels, sure) for name, levels, sure in branches))


def chain(name: str, levels: int, sure: int) -> Post:
    post = Post(name, sure=sure)
    for level in range(levels - 1, 0, -1):
        post = Post(f"{name}{level}", (post,), sure)
    return post


def agree(
    root: Post,
    combinations: Sequence[tuple[str, ...]],
    sync: bool,
    askings: Sequence[Asking] = (Asking(),),
    **more: Any,
) -> None:
    """Check that tree and reference agree on what some agents come to, for all that they may do.

    Args:
        root: The tree.
        combinations: What ``a``, ``b``, and ``c`` do.
        sync: Whether the tree runs in threads.
        askings: How the root asks; each for each combination.
        more: The rest of the cases.
    """
    skills = more.pop("skills", {})
    stages: dict[frozenset[str], list[Case]] = {}
    numbers = count(1)
    for does in combinations:
        told = dict(zip(NAMES, does, strict=False))
        opened = frozenset(name for name, each in told.items() if each == OPEN)
        deeds = {
            name: Deed(each, sure) for (name, each), sure in zip(told.items(), SURE, strict=False)
        }
        for asking in askings:
            given: dict[str, Any] = {
                "deeds": deeds,
                "open": opened,
                "fits": (dict.fromkeys(told, 100),) * len(asking.whom),
                **more,
            }
            case = Case(next(numbers), asking, **given)
            stages.setdefault(opened, []).append(case)
    for cases in stages.values():
        assert_agreement(Stage(root, cases, sync, skills))


def part(every: Iterable[tuple[str, ...]], number: int) -> list[tuple[str, ...]]:
    """Return a sixth of some combinations, each with another number; all of them in the proof."""
    return [*every][sample(number, 0) :: sample(6, 1)]


# A task that names nobody.


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("width", [1, 2])
def test_task_without_name(sync: bool, parallel: bool, width: int) -> None:
    root = flat(2)  # the task fits so many of them

    every = product(EVERY, repeat=width)
    agree(root, part(every, sync + 2 * parallel), sync, parallel=parallel)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_task_that_three_may_take(parallel: bool) -> None:
    every = product(STATUSES, repeat=3)
    agree(flat(3), part(every, parallel), sync=parallel, parallel=parallel)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_candidates_of_a_task_are_listed_further_down(depth: int, parallel: bool) -> None:
    does = ("fulfilled", "partial", "late")
    pairs = [*product(does, repeat=2), ("unable", "needs_input"), ("failed", OPEN)]

    agree(
        deep(depth),
        sample(pairs[parallel::2], pairs),
        sync=(depth % 2 == 0) is parallel,
        parallel=parallel,
    )


@pytest.mark.parametrize("parallel", [False, True])
def test_open_circuit_shuts_out_all_agents_below_it(parallel: bool) -> None:
    pairs = [("fulfilled", other) for other in (*STATUSES, *TROUBLES)]

    agree(deep(3), pairs, sync=parallel, open=frozenset({"a1"}), parallel=parallel)


@pytest.mark.parametrize("parallel", [False, True])
def test_parts_of_an_answer_that_cover_what_a_task_needs(parallel: bool) -> None:
    skills = {"a": ("bread",), "b": ("iron", "bread"), "c": ("craft",)}
    needs = {"bread": frozenset({"a", "b"}), "iron": frozenset({"b"})}
    does = ("fulfilled", "partial", "spent", "needs_input")
    triples = [(*pair, last) for pair in product(does, repeat=2) for last in ("partial", "unable")]

    agree(flat(3), triples, sync=parallel, skills=skills, needs=needs, parallel=parallel)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_task_that_is_split_among_several(sync: bool, parallel: bool) -> None:
    skills = {"a": ("bread",), "b": ("iron",), "c": ("bread", "iron")}
    fits = ({"a": 100, "c": 50}, {"b": 100, "c": 50})
    lasts = cycle(("fulfilled", "unable") if sync else ("partial", "failed", "needs_input"))
    triples = [
        (*pair, last) for pair, last in zip(product(STATUSES, repeat=2), lasts, strict=False)
    ]
    split = Asking(("", ""), splits=True)

    agree(flat(3), triples, sync, [split], skills=skills, fits=fits, parallel=parallel)


# Somebody is named, or several are.


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_named_agents_ask_each_other_down_the_tree(sync: bool, depth: int) -> None:
    root, names = Post("a"), [f"a{level}" for level in range(1, depth)]
    for name in reversed(names):
        root = Post(name, (root, Post(f"other-{name}")))
    way = [*names, "a"]
    asking = {name: Deed(asks=Asking((below,))) for name, below in pairwise(way)}
    cases = [
        Case(number, Asking((way[0],)), {**asking, "a": Deed(does)})
        for number, does in enumerate(("says", *STATUSES, *TROUBLES), start=1)
    ]

    assert_agreement(Stage(Post("head", (root,)), cases, sync))


@pytest.mark.parametrize("join", ["all", "best"])
def test_two_named_agents_are_joined(join: str) -> None:
    every, sync = product(EVERY, repeat=2), join == "all"
    agree(flat(2), part(every, sync), sync, [Asking(NAMES[:2], join)])


@pytest.mark.parametrize("join", ["all", "best"])
def test_three_named_agents_are_joined(sync: bool, join: str) -> None:
    # A quarter of all, and no two tests the same one.
    turn = 2 * sync + (join == "best")
    triples = [
        each for each in product(STATUSES, repeat=3) if sum(map(STATUSES.index, each)) % 4 == turn
    ]

    agree(flat(3), triples, sync, [Asking(NAMES, join)])


@pytest.mark.parametrize("depth", [1, 3])
def test_early_fulfilled_agent_stops_the_others(sync: bool, depth: int) -> None:
    root = flat(2) if depth == 1 else deep(depth)
    askings = [
        Asking(("", "") if depth > 1 else NAMES[:2], join, n, order)
        for join, n in (("first", 0), ("quorum", 2))
        for order in permutations(range(2))
    ]
    does = ("fulfilled", "partial", "failed") if depth == 1 else ("fulfilled", "unable")
    pairs = [*product(does, repeat=2), ("needs_input", "says"), ("late", "says"), ("says", OPEN)]

    # Each in one of the two worlds; the proof has both.
    agree(root, sample(pairs[sync::2], pairs), sync, askings, fits=({"a": 100}, {"b": 100}))


# Any tree.


SAMPLED = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # A tree takes a while to play: what is found is told as it was found.
    phases=[Phase.explicit, Phase.generate],
)


@st.composite
def posts(draw: st.DrawFn, names: Iterator[str], depth: int, most: int) -> Post:
    width = draw(st.integers(1, most)) if depth > 1 else 0
    below = tuple(draw(posts(names, depth - draw(st.integers(1, 2)), 2)) for _ in range(width))
    return Post(next(names), below, draw(st.sampled_from([60, 70, 80, 90])))


def everybody(post: Post) -> Iterator[Post]:
    for each in post.below:
        yield each
        yield from everybody(each)


@st.composite
def askings(draw: st.DrawFn, post: Post) -> Asking:
    """Draw how somebody asks those below it."""
    whom = st.sampled_from(["", "", *(each.name for each in post.below)])
    join = draw(st.sampled_from(["", "", "all", "best"])) if len(post.below) > 1 else ""
    return Asking(tuple(draw(st.lists(whom, min_size=1, max_size=3 if join else 1))), join)


@st.composite
def cases(draw: st.DrawFn, root: Post, number: int, shared: Mapping[str, Any]) -> Case:
    """Draw a case in which everybody does anything."""
    deeds: dict[str, Deed] = {}
    for post in everybody(root):
        thinks = bool(post.below) and draw(st.booleans())
        asks = draw(askings(post)) if thinks else None
        does = draw(st.sampled_from(["says", *STATUSES, "spent", "failed"]))
        deeds[post.name] = Deed(does, draw(st.sampled_from([50, 55, 60, 65])), asks)
    asking = draw(askings(root))
    side_by_side = shared["parallel"] or any(
        each.asks and each.asks.join for each in deeds.values()
    )
    if not side_by_side:
        # Whoever begins beside somebody late below one superior may be in time, or not.
        for name, deed in deeds.items():
            if not deed.asks and draw(st.integers(0, 4)) == 0:
                deeds[name] = Deed("late")
    fit = st.sampled_from([0, 50, 75, 100])
    fits = tuple({name: draw(fit) for name in deeds} for _ in range(3))
    return Case(number, asking, deeds, fits, **shared)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    """Draw a tree with some cases."""
    names = (f"n{number}" for number in count())
    root = draw(posts(names, draw(st.integers(2, 5)), 3))
    below = [each.name for each in everybody(root)]
    opened = draw(st.sets(st.sampled_from(below), max_size=1)) if draw(st.booleans()) else set()
    shared = {"parallel": draw(st.booleans()), "open": frozenset(opened)}
    played = [draw(cases(root, number, shared)) for number in range(1, draw(st.integers(1, 4)) + 1)]
    return Stage(root, played, draw(st.booleans()))


@given(stages())
@settings(SAMPLED, max_examples=sample(6, 100))
def test_any_tree_whose_agents_do_anything(stage: Stage) -> None:
    assert_agreement(stage)


@st.composite
def races(draw: st.DrawFn) -> Stage:
    """Draw races of three."""
    does = st.sampled_from(["fulfilled", "fulfilled", "says", "partial", "needs_input", "failed"])
    played = []
    for number in range(1, 5):
        join, n = draw(st.sampled_from([("first", 0), ("quorum", 1), ("quorum", 2), ("quorum", 3)]))
        order = tuple(draw(st.permutations(range(3))))
        deeds = {name: Deed(draw(does), sure) for name, sure in zip(NAMES, SURE, strict=True)}
        played.append(Case(number, Asking(NAMES, join, n, order), deeds))
    return Stage(flat(3), played, draw(st.booleans()))


@given(races())
@settings(SAMPLED, max_examples=sample(4, 50))
def test_any_race_of_three(stage: Stage) -> None:
    assert_agreement(stage)
