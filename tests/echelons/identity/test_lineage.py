"""Ids are computed from what is written down already, and an identity survives the metadata."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from itertools import product
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.identity.lineage import (
    ECHELONS_NS,
    METADATA_KEYS,
    Identity,
    derive_message_id,
    derive_request_id,
    derive_root_thread_id,
    derive_subordinate_thread_id,
)
from echelons.testing import ScriptedModel

UUID_NAME = "8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11"
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True)
identities = st.builds(
    Identity,
    agent=names,
    path=st.lists(names, min_size=1, max_size=5).map(tuple),
    thread_id=st.uuids().map(str),
    tree=st.text(max_size=16),
    superior_thread_id=st.just("") | st.uuids().map(str),
    request_id=st.text(max_size=5),
    thread_name=st.text(max_size=5),
)


def test_a_name_leads_to_one_thread_and_two_names_to_two() -> None:
    assert derive_root_thread_id("trip") == derive_root_thread_id("trip")
    assert derive_root_thread_id("trip") != derive_root_thread_id("trip ")
    assert UUID(derive_root_thread_id("trip")).version == 5


@pytest.mark.parametrize("name", [UUID_NAME, UUID_NAME.upper()])
def test_a_name_that_is_a_uuid_is_the_id_itself(name: str) -> None:
    assert derive_root_thread_id(name) == UUID_NAME


def test_another_process_comes_to_the_same_ids() -> None:
    code = (
        "from echelons.identity.lineage import *; "
        "print(derive_root_thread_id('trip'), derive_message_id('t', '0'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == [derive_root_thread_id("trip"), derive_message_id("t", "0")]


def test_every_part_of_a_call_makes_another_thread() -> None:
    ids = {derive_subordinate_thread_id(*parts) for parts in product("st", "mn", "cd", (1, 2, 3))}

    assert len(ids) == 24


def test_a_thread_is_named_after_its_call_and_a_later_attempt_after_its_number_too() -> None:
    assert derive_subordinate_thread_id("s", "m", "c") == str(uuid5(ECHELONS_NS, "s/m/c"))
    assert derive_subordinate_thread_id("s", "m", "c", 2) == str(uuid5(ECHELONS_NS, "s/m/c/2"))


def test_requests_messages_and_threads_of_the_same_parts_have_different_ids() -> None:
    ids = [
        derive_subordinate_thread_id("a", "b", "c"),
        derive_request_id("a", "b", "c"),
        derive_message_id("a", "b/c"),
    ]

    assert len(set(ids)) == len(ids)


@given(identities)
def test_an_identity_reads_back_from_its_metadata(identity: Identity) -> None:
    assert Identity.from_metadata(identity.to_metadata()) == identity


@given(identities)
def test_the_metadata_is_texts_only_for_anything_else_is_dropped(identity: Identity) -> None:
    metadata = identity.to_metadata()

    assert tuple(metadata) == METADATA_KEYS
    assert all(isinstance(value, str) for value in metadata.values())


@given(identities, st.dictionaries(st.text(), st.integers() | st.text()))
def test_what_others_keep_in_the_metadata_is_passed_over(
    identity: Identity, other: dict[str, object]
) -> None:
    assert Identity.from_metadata({**other, **identity.to_metadata()}) == identity


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"agent": "head"},
        {"agent_thread_id": "1"},
        {"agent": "", "agent_thread_id": "1"},
        {"agent": "head", "agent_thread_id": ""},
        {"agent": 5, "agent_thread_id": "1"},
        {"agent": "head", "agent_thread_id": None},
        {"agent": "head", "agent_thread_id": "1", "tree": 5},
    ],
)
def test_metadata_without_an_agent_and_its_thread_is_nobodys(metadata: dict[str, object]) -> None:
    assert Identity.from_metadata(metadata) is None


def test_the_least_metadata_that_is_ours_is_an_agent_and_its_thread() -> None:
    found = Identity.from_metadata({"agent": "head", "agent_thread_id": "1"})

    assert found is not None
    assert (found.agent, found.thread_id, found.superior_thread_id) == ("head", "1", "")


def test_the_name_of_an_agent_may_be_of_a_subclass_of_text() -> None:
    class Name(StrEnum):
        HEAD = "head"

    named = {"agent": Name.HEAD, "agent_path": Name.HEAD, "agent_thread_id": "1"}
    found = Identity.from_metadata(named)

    assert found == Identity.from_metadata({key: str(value) for key, value in named.items()})
    assert found is not None
    assert type(found.agent) is str


def test_an_agent_whose_name_is_of_a_subclass_of_text_runs() -> None:
    class Name(str):
        __slots__ = ()

    graph = Agent(Name("head"), model=ScriptedModel(["done"])).compile()

    assert graph.invoke({"messages": [("user", "go")]})["messages"][-1].text == "done"
