"""kill -9 around a repair: it is stored whole or not at all, and can be made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel
from echelons.testing.crash import Death, fork, watched
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")
POISON = "what no provider takes"
MOST = 60
"""More statements than a repair has."""


def fetch() -> str:
    """Fetch a page."""
    return POISON


def read(messages: Sequence[BaseMessage]) -> Any:
    if POISON in str([each.content for each in messages]):
        raise ValueError("400 invalid request")
    return Call("fetch") if str(messages[-1].text) == "fetch" else "fine"


def build_agent() -> Agent:
    return Agent("head", model=ScriptedModel(read), tools=[fetch])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_repair_is_whole_or_not_there(tmp_path: Path, when: Any) -> None:
    base = tmp_path / "base.sqlite"
    with Session(build_agent(), base) as session:
        with pytest.raises(ValueError, match="400"):
            session.send("fetch").result()
        [result] = [each for each in session.repair() if each.kind == "tool"]

    def hide(database: Path, at: int) -> None:
        with watched(Death(at, when)), Session(build_agent(), database) as session:
            session.repair(result.id)

    codes, left = set[int](), set[int]()
    for at in range(1, MOST, sample(7, 1)):
        database = tmp_path / f"{when}-{at}.sqlite"
        shutil.copy(base, database)
        codes.add(fork(partial(hide, database, at)).wait())
        with Session(build_agent(), database) as session:
            hidden = [each.id for each in session.repair() if each.hidden]
            assert hidden in ([], [result.id])
            left.add(len(hidden))
            assert [each.id for each in session.repair(result.id)] == [result.id]
            assert session.resume().result().text == "fine"
    assert -9 in codes
    assert left == {0, 1}
