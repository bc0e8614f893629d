"""A synchronous run keeps to the time of an agent, though nothing in a thread can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolRuntime
from openai import DefaultHttpxClient
from pydantic import SecretStr

from echelons import (
    Agent,
    DelegationPolicy,
    DelegationResponse,
    Session,
    SqliteCheckpointer,
    time_left,
)
from echelons.checkpoints.coordination.candidates import list_circuits
from echelons.errors import InvalidSetting
from echelons.testing import Call, FakeClock, OpenAIServer, ScriptedModel, delegate
from echelons.testing.openai_server import Hang
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIND = Call("call_subordinate", {"message": "cook dinner"})


def only_response(session: Session) -> DelegationResponse:
    messages = session.thread_store.get(session.thread_id).messages
    [answer] = [each for each in messages if isinstance(each, ToolMessage)]
    return DelegationResponse.load(answer.artifact)


def below_another(model: ScriptedModel, slow: Any) -> Agent:
    """Return a tree of three levels: the best candidate is below an agent that passes it on."""
    between = Agent("between", subordinates=[slow])
    quick = Agent("quick", capabilities={"cook dinner": 0.4})
    rules = DelegationPolicy(timeout=1.5)
    return Agent("head", model=model, subordinates=[between, quick], delegation=rules)


def test_a_late_last_reply_is_a_timeout_and_the_next_best_is_asked(
    saver: SqliteCheckpointer, clock: FakeClock
) -> None:
    def late(_: Any) -> str:
        clock.advance(1.5)
        return "pizza, but late"

    model = ScriptedModel({"head": [FIND, "done"], "slow": late, "quick": ["pasta"]})
    slow = Agent("slow", capabilities={"cook dinner": 0.9})
    session = Session(below_another(model, slow), saver)

    assert session.send("go").result().text == "done"

    answer = only_response(session)
    assert (answer.agent, answer.result) == ("quick", "pasta")
    first, _ = answer.subordinate_responses
    assert (first.path, first.failed) == ("head/between/slow", True)
    assert first.reason == "timeout: 'slow' has not answered within 1.5 s"
    assert [(each.agent, each.failures) for each in list_circuits(saver.ledger)] == [("slow", 1)]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def test_a_function_or_an_error_that_is_late_is_a_timeout(
    saver: SqliteCheckpointer, clock: FakeClock
) -> None:
    def slow(task: str) -> str:
        """Cooks dinner."""
        clock.advance(2)
        return "cold pizza"

    def broken(task: str) -> str:
        """Cooks dinner."""
        clock.advance(2)
        raise ConnectionError("no gas")

    calls: list[Any] = [delegate("slow", "dinner"), delegate("broken", "dinner"), "sorry"]
    rules = DelegationPolicy(timeout=2)
    head = Agent("head", model=ScriptedModel(calls), subordinates=[slow, broken], delegation=rules)
    session = Session(head, saver)

    session.send("go").result()

    messages = session.thread_store.get(session.thread_id).messages
    told = [each.text for each in messages if isinstance(each, ToolMessage)]
    assert told == [
        "[unable] timeout: 'slow' has not answered within 2 s",
        "[unable] timeout: 'broken' has not answered within 2 s",
    ]


def test_an_agent_that_was_stopped_is_not_late(saver: SqliteCheckpointer, clock: FakeClock) -> None:
    def answer(_: Any) -> Call:
        session.stop("head/scout")
        clock.advance(5)
        return Call("look")

    def look() -> str:
        """Look around."""
        return "looked"

    model = ScriptedModel({"head": [delegate("scout", "go"), "sorry"], "scout": answer})
    scout = Agent("scout", tools=[look])
    rules = DelegationPolicy(timeout=2)
    head = Agent("head", model=model, subordinates=[scout], delegation=rules)
    session = Session(head, saver)

    session.send("go").result()

    assert only_response(session).reason.startswith("stopped: head/scout")


# The default


LATE_LEAF = "[unable] timeout: 'leaf' has not answered within 120 s"


def three_levels(wait: Callable[..., Any]) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(
        {
            "head": [delegate("middle", "go"), "done"],
            "middle": [delegate("leaf", "go"), "Middle is done."],
            "leaf": [Call("wait"), "Leaf is done."],
        }
    )
    middle = Agent("middle", subordinates=[Agent("leaf", tools=[wait])])
    return Agent("head", model=model, subordinates=[middle]), model


def check_times(saver: SqliteCheckpointer, model: ScriptedModel, begun: float, heard: str) -> None:
    """Check what the middle has heard of the leaf, and how much time each has had."""
    last = [each for each in model.calls if each.agent == "middle"][-1].messages[-1]
    assert last.text == heard
    query = "SELECT deadline FROM delegations ORDER BY length(superior_path)"
    deadlines = [deadline for (deadline,) in saver.conn.execute(query)]
    for deadline, seconds in zip(deadlines, (240, 120), strict=True):
        assert begun + seconds - 1 < deadline < time() + seconds + 1


@pytest.mark.parametrize(("seconds", "heard"), [(119, "Leaf is done."), (120, LATE_LEAF)])
def test_an_agent_has_120_seconds_for_each_level_from_it_down(
    saver: SqliteCheckpointer, clock: FakeClock, seconds: float, heard: str
) -> None:
    def wait() -> str:
        """Wait."""
        clock.advance(seconds)
        return "waited"

    head, model = three_levels(wait)
    begun = time()
    assert Session(head, saver).send("go").result().text == "done"
    check_times(saver, model, begun, heard)


@pytest.mark.parametrize(("seconds", "heard"), [(119, "Leaf is done."), (120, LATE_LEAF)])
async def test_in_an_event_loop_it_has_the_same(
    saver: SqliteCheckpointer, loop_clock: FakeClock, seconds: float, heard: str
) -> None:
    async def wait() -> str:
        """Wait."""
        loop_clock.advance(seconds)
        await asyncio.sleep(0)
        return "waited"

    head, model = three_levels(wait)
    begun = time()
    assert (await (await Session(head, saver).asend("go")).result()).text == "done"
    check_times(saver, model, begun, heard)


def test_a_timeout_that_is_set_is_for_the_whole_branch() -> None:
    assert DelegationPolicy(timeout=7).compute_timeout(levels=3) == 7
    assert DelegationPolicy(timeout=None).compute_timeout(levels=3) is None
    assert DelegationPolicy().compute_timeout(levels=1) == 120
    with pytest.raises(InvalidSetting, match=r"DelegationPolicy\(timeout=0\): .* greater than 0"):
        DelegationPolicy(timeout=0)


# Tools


def test_a_tool_can_read_what_is_left(world: World, saver: SqliteCheckpointer) -> None:
    left: dict[str, float | None] = {}

    def search(runtime: ToolRuntime) -> str:
        """Search."""
        left[runtime.config["metadata"]["agent_path"]] = time_left(runtime)
        assert (time_left(runtime.config) is None) == (time_left(runtime) is None)
        return "found"

    leaf = Agent("leaf", tools=[search])
    middle = Agent("middle", tools=[search], subordinates=[leaf])
    model = ScriptedModel(
        {
            "head": [[Call("search"), delegate("middle", "go")], "done"],
            "middle": [[Call("search"), delegate("leaf", "go")], "done"],
            "leaf": [Call("search"), "done"],
        }
    )
    session = Session(Agent("head", model=model, tools=[search], subordinates=[middle]), saver)

    world.send(session, "go")

    assert left["head"] is None
    assert left["head/middle"] == pytest.approx(240, abs=20)
    assert left["head/middle/leaf"] == pytest.approx(120, abs=20)


def test_what_is_left_belongs_to_a_call() -> None:
    with raises_code("no_call", match=r"time_left\(\)"):
        time_left("search")


# Models


@pytest.fixture
def late_answer(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[DelegationResponse, list[Any]]]:
    """Return what the head hears of an agent whose model takes too long, and the requests."""
    send = DefaultHttpxClient.send
    sent: list[Any] = []

    def send_late(client: DefaultHttpxClient, request: Any, **options: Any) -> Any:
        sent.append(request)
        clock.advance(0.02)  # before the client's real timeout, however late the server begins
        return send(client, request, **options)

    monkeypatch.setattr(DefaultHttpxClient, "send", send_late)

    def hear(create: Callable[[str], Any], step: object) -> tuple[DelegationResponse, list[Any]]:
        with OpenAIServer(lambda _: step) as server, SqliteCheckpointer(":memory:") as saver:
            slow = Agent("slow", capabilities={"cook dinner": 0.9}, model=create(server.url))
            model = ScriptedModel({"head": [FIND, "done"], "quick": ["pasta"]})
            between = Agent("between", subordinates=[slow])
            quick = Agent("quick", capabilities={"cook dinner": 0.4})
            rules = DelegationPolicy(timeout=0.02)
            head = Agent("head", model=model, subordinates=[between, quick], delegation=rules)
            session = Session(head, saver)
            session.send("go").result()
            return only_response(session), sent

    return hear


def create_named(url: str) -> Any:
    return "openai:test-model"


def create_own(url: str) -> Any:
    return ChatOpenAI(
        model="test-model", base_url=url, api_key=SecretStr("key"), max_retries=0, timeout=60
    )


@pytest.mark.parametrize("create", [create_named, create_own])
@pytest.mark.parametrize("step", [Hang(), Hang("one two three", after=1), "one two three"])
def test_what_is_left_is_the_timeout_of_the_model(
    late_answer: Callable[..., tuple[DelegationResponse, list[Any]]],
    monkeypatch: pytest.MonkeyPatch,
    create: Callable[[str], Any],
    step: object,
) -> None:
    """Before a reply, within one, and a reply that is written word by word."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def named(url: str) -> Any:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        return create(url)

    answer, requests = late_answer(named, step)

    assert (answer.agent, answer.result) == ("quick", "pasta")
    late, _ = answer.subordinate_responses
    assert late.reason == "timeout: 'slow' has not answered within 0.02 s"
    assert len(requests) == 1, "after its agent's time a request is not sent again"
