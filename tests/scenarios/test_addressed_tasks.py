"""Tasks for an agent below the root: each superior's model is called once, on the way up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import interrupt

from echelons import (
    Agent,
    DelegationRequest,
    Human,
    Limits,
    Permissions,
    Session,
    SqliteCheckpointer,
    get_request,
)
from echelons.errors import InterventionPending, ThreadBusy, UnfinishedTurn, UnknownPath
from echelons.runtime.run_events import RunEventKind
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.error_codes import raises_code
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.told_lines import get_last, without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

SCOUT = "head/north/scout"


def heard(messages: Sequence[BaseMessage]) -> str:
    """Reply with what was said last."""
    return f"<{without_told(get_last(messages).text)}>"


def tree(**more: Any) -> Agent:
    """Return a tree of three levels; each model that is given no replies quotes what it was told.

    Other than replies are given to the root.
    """
    names = ("head", "north", "scout")
    replies = {name: more.pop(name, heard) for name in names}
    tools = more.pop("tools", ())
    north = Agent("north", subordinates=[Agent("scout", tools=tools)])
    return Agent(
        "head", guidance="", model=ScriptedModel(replies), subordinates=[north, beside], **more
    )


def beside(task: str) -> str:
    """Say what it was told."""
    return f"beside: {task}"


def asked(session: Session) -> Counter[str]:
    """Return how often each model was called."""
    model = session.graph.agent.model
    assert isinstance(model, ScriptedModel)
    return Counter(str(each.agent) for each in model.calls)


def messages_of(session: Session, agent: str) -> Sequence[BaseMessage]:
    """Return the messages of an agent's only thread."""
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    return session.thread_store.get(found.thread_id).messages


def test_no_model_is_called_on_the_way_down_and_each_once_on_the_way_up(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(tree(), saver)

    result = world.send(session, "Look", to=SCOUT)

    assert result.text == "<<<Look>>>"
    model = session.graph.agent.model
    assert isinstance(model, ScriptedModel)
    assert [each.agent for each in model.calls] == ["scout", "north", "head"]
    assert result.response is not None
    assert result.response.usage.model_calls == 3
    for agent, answer in (("north", "<Look>"), ("head", "<<Look>>")):
        task, call, told, reply = messages_of(session, agent)
        assert isinstance(call, AIMessage)
        assert isinstance(told, ToolMessage)
        assert [each["name"] for each in call.tool_calls] == ["call_subordinate"]
        assert (task.text, told.text, reply.text) == ("Look", answer, f"<{answer}>")
        assert told.tool_call_id == call.tool_calls[0]["id"] == call.id


def test_the_agent_goes_on_with_the_thread_that_it_has(
    world: World, saver: SqliteCheckpointer
) -> None:
    first = [delegate("north", "go"), "over"]
    session = Session(
        tree(
            head=lambda seen: first[len(seen) // 2] if len(seen) < 4 else heard(seen),
            north=lambda seen: delegate("scout", "go") if len(seen) == 1 else heard(seen),
        ),
        saver,
    )
    world.send(session, "go")
    before = [(each.agent, each.thread_id) for each in session.trace().walk()]

    assert world.send(session, "Look", to=SCOUT).text == "<<<Look>>>"
    assert world.send(session, "Once more", to=SCOUT).text == "<<<Once more>>>"

    assert [(each.agent, each.thread_id) for each in session.trace().walk()] == before
    said = [str(each.text) for each in messages_of(session, "scout")]
    assert said == ["go", "<go>", "Look", "<Look>", "Once more", "<Once more>"]
    # Providers refuse a conversation in which two calls have the same id.
    every = [each for each in messages_of(session, "head") if isinstance(each, AIMessage)]
    ids = [call["id"] for each in every for call in each.tool_calls]
    assert len(ids) == len(set(ids)) == 3
    assert asked(session) == {"head": 4, "north": 4, "scout": 3}


def test_ten_levels_are_passed_without_a_model_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    names = [f"level{number}" for number in range(10)]
    below: list[Agent] = []
    for name in reversed(names[1:]):
        below = [Agent(name, subordinates=below)]
    model = ScriptedModel(dict.fromkeys(names, heard))
    session = Session(Agent(names[0], model=model, subordinates=below), saver)

    result = world.send(session, "x", to="/".join(names))

    assert result.text == "<" * 10 + "x" + ">" * 10
    assert [each.agent for each in model.calls] == names[::-1]


def test_what_is_addressed_shows_in_the_events_and_the_trace(saver: SqliteCheckpointer) -> None:
    session = Session(tree(), saver)

    events = list(session.send("Look", to=SCOUT))

    kinds = (RunEventKind.TASK, RunEventKind.DELEGATION, RunEventKind.RESPONSE)
    assert [(each.path, each.kind) for each in events if each.kind in kinds] == [
        ("head", "task"),
        ("head", "delegation"),
        ("head/north", "task"),
        ("head/north", "delegation"),
        (SCOUT, "task"),
        (SCOUT, "response"),
        ("head/north", "response"),
    ]
    tasks = [each for each in events if each.kind is RunEventKind.TASK]
    assert [each.data.get("to") for each in tasks] == [SCOUT, SCOUT, None]
    assert [each.usage.model_calls for each in events if each.kind == "message"] == [0, 0, 1, 1, 1]
    sent = {each.agent: each.requests[-1].sent for each in session.trace().walk() if each.requests}
    assert {name: each and each.addressee for name, each in sent.items()} == {
        "north": ("scout",),
        "scout": (),
    }
    assert {str(each.state) for each in session.thread_store.verify(session.thread_id)} == {"ok"}


def test_the_context_goes_to_all_on_the_way(world: World, saver: SqliteCheckpointer) -> None:
    read: list[DelegationRequest] = []

    def look() -> str:
        """Look around."""
        read.append(get_request())
        return "seen"

    scout = [Call("look"), "I see."]
    session = Session(tree(scout=scout, tools=[look]), saver)

    world.send(session, "Look", to=SCOUT, request_context={"from": "Ann"})

    assert [(each.task, each.context, each.path) for each in read] == [
        ("Look", {"from": "Ann"}, "head/north/scout")
    ]
    for agent in ("head", "north", "scout"):
        facts, task, *_ = messages_of(session, agent)
        assert (facts.text, task.text) == ("from: Ann", "Look")


def test_task_for_the_root_is_not_passed_on(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(tree(), saver)

    assert world.send(session, "Look", to="head").text == "<Look>"
    assert asked(session) == {"head": 1}


@pytest.mark.parametrize("path", ["head/scout", "north", "", "head/", "head//north", 7])
def test_an_unknown_path_is_refused_and_nothing_is_stored(
    world: World, saver: SqliteCheckpointer, path: Any
) -> None:
    session = Session(tree(), saver)

    with pytest.raises(UnknownPath, match="head/north/scout"):
        world.send(session, "Look", to=path)

    assert session.threads() == []


def test_content_blocks_are_for_the_root_alone(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(tree(), saver)
    blocks: Any = [{"type": "text", "text": "Look"}]

    with raises_code("invalid_task", match="only a text"):
        world.send(session, blocks, to=SCOUT)

    assert world.send(session, blocks, to="head").text == "<Look>"


def test_a_turn_that_is_submitted_again_is_not_run_twice(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(tree(), saver)
    world.send(session, "Look", to=SCOUT, turn_id="1")

    again = world.send(session, "Look", to=SCOUT, turn_id="1")

    assert (again.text, again.replayed) == ("<<<Look>>>", True)
    assert asked(session) == {"head": 1, "north": 1, "scout": 1}
    for other in ("head/north", None):
        with raises_code("turn_reused"):
            world.send(session, "Look", to=other, turn_id="1")


def test_a_question_of_the_agent_is_answered_in_another_session(
    world: World, tmp_path: Path
) -> None:
    def ask() -> str:
        """Ask a human."""
        return str(interrupt("Which pass?"))

    def fresh() -> Agent:
        return tree(scout=[Call("ask"), "I know."], tools=[ask])

    with Session(fresh(), tmp_path / "t.sqlite") as session:
        [question] = world.send(session, "Look", to=SCOUT).questions
        assert question.path == "head/north/scout"
        assert asked(session) == {"scout": 1}
        with pytest.raises(InterventionPending):
            world.send(session, "Look again", to=SCOUT)

    with Session(fresh(), tmp_path / "t.sqlite") as session:
        assert world.answer(session, {question.id: "the high one"}).text == "<<I know.>>"
        assert asked(session) == {"scout": 1, "north": 1, "head": 1}


def test_a_question_to_the_superior_is_answered_on_the_same_thread(
    world: World, saver: SqliteCheckpointer
) -> None:
    def north(seen: Sequence[BaseMessage]) -> Any:
        return delegate("scout", "The high one.") if "asks:" in str(seen[-1].text) else heard(seen)

    def scout(seen: Sequence[BaseMessage]) -> Any:
        return "I know." if len(seen) > 1 else Call("ask_superior", {"question": "Which pass?"})

    session = Session(tree(north=north, scout=scout), saver)

    assert world.send(session, "Look", to=SCOUT).text == "<<I know.>>"

    assert asked(session) == {"scout": 2, "north": 2, "head": 1}
    assert [each.text for each in messages_of(session, "scout")][-2:] == [
        "The high one.",
        "I know.",
    ]


def test_an_agent_that_is_unable_is_its_superiors_affair(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(tree(scout=[report("unable", "fog")]), saver)

    assert world.send(session, "Look", to=SCOUT).text == "<<[unable]\nfog>>"


@pytest.mark.parametrize("path", ["head/beside", "head/ann"])
def test_a_function_and_a_human_can_be_addressed(
    world: World, saver: SqliteCheckpointer, path: str
) -> None:
    model = ScriptedModel({"head": heard})
    head = Agent("head", model=model, subordinates=[beside, Human("ann", "Knows")])
    session = Session(head, saver)

    result = world.send(session, "Look", to=path)
    for question in result.questions:
        assert question.addressee == "ann"
        result = world.answer(session, {question.id: "beside: Look"})

    assert result.text == "<beside: Look>"
    assert asked(session) == {"head": 1}


@pytest.mark.parametrize(("calls", "text"), [(3, "<<<Look>>>"), (2, "Not finished")])
def test_only_the_calls_on_the_way_up_count_for_the_limits(
    world: World, saver: SqliteCheckpointer, calls: int, text: str
) -> None:
    session = Session(tree(limits=Limits(calls=calls)), saver)

    result = world.send(session, "Look", to=SCOUT)

    assert result.text.startswith(text)
    assert result.status == ("finished" if calls == 3 else "limited")
    assert sum(asked(session).values()) == calls


@pytest.mark.parametrize("path", [SCOUT, "head/north"])
def test_agent_stopped_meanwhile_ends_and_its_superior_reads_so(
    world: World, saver: SqliteCheckpointer, path: str
) -> None:
    def scout(_: Sequence[BaseMessage]) -> Any:
        session.stop(path)
        return Call("look")

    def look() -> str:
        """Look around."""
        raise AssertionError("a call of an agent that was stopped")

    session = Session(tree(scout=scout, tools=[look]), saver)

    assert "stopped" in world.send(session, "Look", to=SCOUT).text
    assert asked(session)["head"] == 1


def test_paused_agent_takes_no_other_task_before_it_resumes(
    world: World, saver: SqliteCheckpointer
) -> None:
    def scout(seen: Sequence[BaseMessage]) -> Any:
        if seen[-1].type == "human":
            session.pause(SCOUT)
            return Call("look")
        return heard(seen)

    def look() -> str:
        """Look around."""
        return "seen"

    session = Session(tree(scout=scout, tools=[look]), saver)

    assert not world.send(session, "Look", to=SCOUT).finished
    with pytest.raises(UnfinishedTurn):
        world.send(session, "Look again", to=SCOUT)

    assert world.resume(session).text == "<<<seen>>>"
    assert asked(session) == {"scout": 2, "north": 1, "head": 1}


def test_a_thread_at_work_takes_no_task(saver: SqliteCheckpointer) -> None:
    refused: list[type[BaseException]] = []

    def scout(_: Sequence[BaseMessage]) -> Any:
        try:
            Session(tree(), saver).send("Me, too", to="head/north")
        except ThreadBusy as error:
            refused.append(type(error))
        return "done"

    session = Session(tree(scout=scout), saver)

    assert session.send("Look", to=SCOUT).result().text == "<<done>>"
    assert refused == [ThreadBusy]


@pytest.mark.parametrize(("rule", "text"), [("ask", "<<<Look>>>"), ("deny", "<<[unable] denied")])
def test_a_rule_for_the_agent_holds_for_what_is_addressed_to_it(
    world: World, saver: SqliteCheckpointer, rule: Any, text: str
) -> None:
    session = Session(tree(permissions=Permissions(approvals={"scout": rule})), saver)

    result = world.send(session, "Look", to=SCOUT)
    for question in result.questions:
        assert asked(session) == {}
        result = world.answer(session, {question.id: "approve"})

    assert result.text.startswith(text)
    assert asked(session)["scout"] == (rule == "ask")


@pytest.fixture(scope="module", params=["sync", "async"])
def deaths(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> list[dict[str, Any]]:
    """How each turn ends; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("deaths"))
    driver = "tests.scenarios.drivers.addressed"
    return list(fork_server.load(driver, folder, request.param, str(sample(11, 1))))


@pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")
def test_kill_9_at_a_write_changes_nothing_of_the_end(deaths: list[dict[str, Any]]) -> None:
    first, *others = deaths

    assert first["text"] == "head has heard: north has heard: scout has heard: the high one"
    assert first["asked"] == ["scout", "scout", "north", "head"]
    assert len(others) > 1
    for each in others:
        assert {**each, "asked": 0} == {**first, "asked": 0}
        # At most the call whose reply was not stored is made again.
        assert Counter(first["asked"]) <= Counter(each["asked"])
        assert len(each["asked"]) <= len(first["asked"]) + 1
