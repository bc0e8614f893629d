"""The road of one delegation: the modules, functions and calls of ours between task and answer."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import echelons
from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel
from tests.gates.figures import check_gate

PACKAGE = f"{Path(echelons.__file__).parent}/"


def trace_delegation(database: Path) -> Counter[CodeType]:
    """Return how often each function of ours is called while a subordinate does a task.

    It is the second task of the session: what is made once, such as a compiled tree, is no part.
    """
    call = Call("call_subordinate", {"subordinate": "scout", "message": "Look"})
    head = ScriptedModel([call, "Done"])  # once a turn
    scout = Agent("scout", "Looks", model=ScriptedModel(["Nothing"]))
    counts: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            counts[frame.f_code] += 1

    with Session(Agent("head", "Leads", model=head, subordinates=[scout]), database) as session:
        assert str(session.send("Begin").result()) == "Done"
        threading.setprofile(count)
        sys.setprofile(count)
        try:
            assert str(session.send("Again").result()) == "Done"
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return counts


def test_road_of_one_delegation(tmp_path: Path) -> None:
    counts = trace_delegation(tmp_path / "road.sqlite")

    modules = Counter(code.co_filename.removeprefix(PACKAGE) for code in counts)
    check_gate("modules on the road of a delegation", len(modules), sorted(modules))
    check_gate("functions on the road of a delegation", len(counts))
    check_gate("calls on the road of a delegation", counts.total())


def test_page_of_the_architecture_describes_the_road(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    road = page.partition("## The road of a request")[2].partition("A task that names no")[0]
    described = re.findall(r"`(?:echelons/)?((?:[a-z_]+/)+[a-z_]+\.py)`", road)

    counts = trace_delegation(tmp_path / "road.sqlite")

    traced = dict.fromkeys(code.co_filename.removeprefix(PACKAGE) for code in counts)
    assert described == [module for module in traced if module in described]
