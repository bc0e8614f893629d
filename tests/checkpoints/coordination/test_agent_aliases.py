"""An alias is one agent's in the whole database, and stays so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Session, SqliteCheckpointer
from echelons.checkpoints.coordination.agent_aliases import assign_alias, list_aliases
from echelons.checkpoints.ledger import Ledger, MemoryLedger, Transaction, build_key, get_ledger
from echelons.errors import LedgerDamaged
from echelons.identity.lineage import derive_agent_id
from echelons.tree.name_themes import NameTheme, load_theme
from tests.fork_server import REPOSITORY, ForkServer
from tests.proof import sample
from tests.scenarios.drivers.camp import team

LETTERS = "abcdefgh"
SMALL = NameTheme("small", tuple(f"{one}{two}" for one in LETTERS for two in LETTERS))
"""The fewest names that a theme may have."""


@pytest.fixture(params=["ours", "in memory"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """The ledger of a database, and that of another saver."""
    if request.param == "ours":
        with SqliteCheckpointer(":memory:") as saver:
            yield saver.ledger
    else:
        yield get_ledger(InMemorySaver())


def assign(ledger: Ledger, agent: str, thread: str = "t", theme: NameTheme = SMALL) -> str:
    return ledger.commit(lambda open_: assign_alias(open_, thread, agent, theme, "seed"))


def read(ledger: Ledger, thread: str = "t") -> dict[str, str]:
    return ledger.query(lambda open_: list_aliases(open_, thread))


def put(ledger: Ledger, key: str, value: Any) -> None:
    def write(open_: Any) -> None:
        open_.discard(key)
        open_.compare_and_set(key, None, value)

    ledger.commit(write)


def test_an_agent_keeps_its_alias(ledger: Ledger) -> None:
    alias = assign(ledger, "a")

    assert alias in SMALL.names
    assert assign(ledger, "a") == alias
    assert assign(ledger, "a", theme=load_theme("birds")) == alias
    assert read(ledger) == {"a": alias}
    assert read(ledger, "other") == {}


def test_the_first_choice_follows_from_seed_and_agent_alone() -> None:
    def assign_first(agent: str, seed: str) -> str:
        return MemoryLedger().commit(lambda open_: assign_alias(open_, "t", agent, SMALL, seed))

    drawn = {(agent, seed): assign_first(agent, seed) for agent in "abcdef" for seed in "xyz"}

    assert drawn == {(agent, seed): assign_first(agent, seed) for agent, seed in drawn}
    assert len(set(drawn.values())) > 10


def test_a_pool_that_is_used_up_goes_on_with_numbers(ledger: Ledger) -> None:
    aliases = [assign(ledger, str(number)) for number in range(150)]

    assert len({each.casefold() for each in aliases}) == 150
    assert set(aliases[:64]) == set(SMALL.names)
    assert {each.removesuffix("-2") for each in aliases[64:128]} == set(SMALL.names)
    assert all(each.endswith("-3") for each in aliases[128:])
    # Another thread has the same pool, and another theme with the same names, in any case.
    assert assign(ledger, "0", "other").endswith("-3")
    upper = NameTheme("upper", tuple(each.upper() for each in SMALL.names))
    assert assign(ledger, "1", "other", upper).endswith("-3")


@given(
    agents=st.lists(
        st.tuples(st.sampled_from(["t", "u/v", "%2F"]), st.text(max_size=5)), max_size=90
    ),
    seed=st.text(max_size=3),
)
def test_aliases_are_unique_and_stable(agents: list[tuple[str, str]], seed: str) -> None:
    ledger, given_ = MemoryLedger(), dict[tuple[str, str], str]()
    for thread, agent in agents:
        work = partial(assign_alias, root_thread=thread, agent_id=agent, theme=SMALL, seed=seed)
        alias = ledger.commit(work)
        assert given_.setdefault((thread, agent), alias) == alias

    assert len(set(given_.values())) == len(given_)
    for thread in {thread for thread, _ in agents}:
        own = {agent: alias for (each, agent), alias in given_.items() if each == thread}
        assert read(ledger, thread) == own


def test_assigning_is_linear_in_the_number_of_agents() -> None:
    ledger, read_ = MemoryLedger(), 0

    def count_reads(number: int) -> int:
        """Give so many agents an alias, and return how many names were looked at."""
        nonlocal read_
        read_ = 0

        def assign_counted(open_: Transaction, agent_id: str) -> str:
            return assign_alias(
                cast("Any", CountingTransaction(open_)), f"t{number}", agent_id, SMALL, ""
            )

        class CountingTransaction:
            """A transaction that counts what is compared."""

            def __init__(self, open_: Transaction) -> None:
                self._open = open_

            def __getattr__(self, name: str) -> Any:
                nonlocal read_
                read_ += 1
                return getattr(self._open, name)

        for each in range(number):
            ledger.commit(partial(assign_counted, agent_id=str(each)))
        return read_

    # Whole pools, of which those of the second begin where those of the first end.
    first, second = count_reads(640), count_reads(1280)

    assert second <= 2.2 * first


@pytest.mark.parametrize("value", [{"alias": 5}, {}, [], {"alias": "nobody's"}])
def test_a_damaged_alias_costs_its_own_agent_alone(ledger: Ledger, value: Any) -> None:
    for agent in "abc":
        assign(ledger, agent)
    before = read(ledger)
    put(ledger, build_key("t", "alias", "b"), value)

    with pytest.raises(LedgerDamaged, match="the alias that the ledger holds"):
        assign(ledger, "b")
    assert read(ledger) == {agent: before[agent] for agent in "ac"}
    assert assign(ledger, "a") == before["a"]
    assert assign(ledger, "d") not in before.values()


def test_an_agent_never_has_the_alias_of_another(ledger: Ledger) -> None:
    taken = assign(ledger, "a")
    put(ledger, build_key("t", "alias", "b"), {"alias": taken})

    with pytest.raises(LedgerDamaged, match="no name of this agent"):
        assign(ledger, "b")
    assert read(ledger) == {"a": taken}


def test_a_damaged_name_is_nobodys_for_good(ledger: Ledger) -> None:
    taken = assign(ledger, "a")
    put(ledger, f"alias-name//{taken.casefold()}", "x")

    with pytest.raises(LedgerDamaged):
        assign(ledger, "a")
    assert read(ledger) == {}
    others = {assign(ledger, str(number)) for number in range(70)}
    assert taken not in others


@pytest.mark.parametrize("value", ["x", -5, {}])
def test_a_damaged_number_of_a_pool_is_found_again(ledger: Ledger, value: Any) -> None:
    before = {assign(ledger, str(number)) for number in range(70)}
    put(ledger, f"alias-pool//{SMALL.digest}", value)

    after = {assign(ledger, str(number)) for number in range(70, 140)}

    assert before.isdisjoint(after)
    assert len(after) == 70


def test_the_names_of_a_deleted_thread_stay_taken_by_its_agents() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        aliases = {agent: assign(saver.ledger, agent) for agent in "abc"}
        saver.delete_thread("t")
        assert read(saver.ledger) == {}

        others = {assign(saver.ledger, str(number), "other") for number in range(61)}
        assert others.isdisjoint(aliases.values())
        # The same thread, made again, has its agents' names again.
        assert {agent: assign(saver.ledger, agent) for agent in "abc"} == aliases
        assert saver.check().is_sound


def test_a_copied_thread_has_agents_without_aliases() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(team({}), saver)
        session.send("go").result()
        root = session.thread_id
        agent_id = derive_agent_id(root, "head/north/camp")
        alias = assign(saver.ledger, agent_id, root)
        saver.copy_thread(root, "11111111-2222-4333-8444-555555555555")

        assert session.registry().get(alias).path == "head/north/camp"
        copied = session.thread_store.registry("11111111-2222-4333-8444-555555555555")
        assert len(copied.agents) == 4
        assert {each.alias for each in copied.agents} == {""}
        own = assign(saver.ledger, copied.get("head/north/camp").id, copied.agents[0].thread_ids[0])
        assert own != alias
        assert not saver.ledger.query(
            lambda open_: open_.list_keys(build_key("11111111-2222-4333-8444-555555555555", "x"))
        )


def test_an_agent_with_a_damaged_alias_is_in_the_registry_without_one() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(team({}), saver)
        session.send("go").result()
        for path in ("head/north", "head/south"):
            assign(saver.ledger, derive_agent_id(session.thread_id, path), session.thread_id)
        named = session.registry()
        assert all(named.get(path).alias for path in ("head/north", "head/south"))
        key = build_key(session.thread_id, "alias", named.get("head/north").id)
        put(saver.ledger, key, 5)

        found = session.registry()

        assert [each.path for each in found.agents] == [each.path for each in named.agents]
        assert found.get("head/north").alias == ""
        assert found.get("head/south").alias == named.get("head/south").alias
        [fault] = saver.check().faults
        assert "alias" in fault.where


def test_two_processes_give_all_agents_different_aliases(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    database, number = str(tmp_path / "t.sqlite"), sample(60, 200)
    SqliteCheckpointer(database).close()
    driver = ("-m", "tests.scenarios.drivers.naming", database)
    started = [
        fork_server.start(*driver, thread, str(number), cwd=REPOSITORY, stdin=subprocess.PIPE)
        for thread in ("one", "two")
    ]
    for each in started:
        assert each.stdout
        assert each.stdout.readline() == "ready\n"
    ended = []
    for each in started:
        assert each.stdin
        each.stdin.write("\n")
        each.stdin.flush()
    ended = [json.loads(each.communicate()[0]) for each in started]

    given_ = [alias for aliases in ended for alias in aliases]
    assert len({each.casefold() for each in given_}) == 2 * number
    with SqliteCheckpointer(database) as saver:
        for thread, aliases in zip(("one", "two"), ended, strict=True):
            assert sorted(read(saver.ledger, thread).values()) == sorted(aliases)
        assert saver.check().is_sound
