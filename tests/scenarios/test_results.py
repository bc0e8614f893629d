"""What a result says of its turn: how it stands and why, and the root's own response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Limits, Result, Session, SqliteCheckpointer
from echelons.checkpoints.coordination import turns
from echelons.checkpoints.ledger import build_key
from echelons.delegation import DelegationResponse, Status, Usage
from echelons.testing import Call, Reply, ScriptedModel, delegate, per_conversation
from tests.scenarios.drivers.camp import first, look, team, told, waiting

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

BY_ITSELF = "no subordinate was asked: head answered by itself"


class Died(BaseException):
    """The process is gone."""


def die(*_: Any) -> None:
    raise Died


def digging(limits: Limits) -> Agent:
    """Return three agents; the lowest digs for ever."""
    return replace(team({"camp": lambda _: Call("look")}), limits=limits)


def stopping(sessions: list[Session]) -> Agent:
    """Return the team; its camp stops the whole turn."""

    def stop(_: Sequence[BaseMessage]) -> Any:
        sessions[0].stop()
        return "camp is done"

    return team({"camp": stop})


def check_response(result: Result, status: Status, reason: str, answer: str) -> DelegationResponse:
    """Check the root's response of a turn that has ended, and return it."""
    response = result.response
    assert response is not None
    assert (response.agent, response.path, response.status) == ("head", "head", status)
    assert (response.reason, response.result) == (reason, answer)
    return response


# How a turn stands


def test_a_finished_turn_has_the_response_of_its_root(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = team({"head": [[delegate("north", "go"), delegate("south", "go")], Reply("over")]})
    head = replace(head, capabilities={"travel": 0.75})

    result = world.send(Session(head, saver), "go", turn_id="7")

    assert (result.status, result.finished, result.reason) == ("finished", True, "")
    response = check_response(result, Status.FULFILLED, "", "over")
    assert (response.request_id, response.confidence) == ("7", 0.75)
    assert [each.agent for each in response.subordinate_responses] == ["north", "south"]
    [north, _] = response.subordinate_responses
    assert [each.agent for each in north.subordinate_responses] == ["camp"]
    assert response.usage == result.usage == Usage(model_calls=6, unknown_calls=6)


class CountingSaver(SqliteCheckpointer):
    """Counts how often the history of a conversation is read."""

    reads = 0

    def get_delta_channel_history(self, **kwargs: Any) -> Any:
        self.reads += 1
        return super().get_delta_channel_history(**kwargs)


def test_the_end_of_a_turn_is_not_read_from_the_database_again(world: World) -> None:
    head = team({"head": [delegate("north", "go"), "over"]})
    with CountingSaver(":memory:") as saver:
        session = Session(head, saver)
        result = world.send(session, "go")

        assert saver.reads == 0
        assert session.thread_store.get(session.thread_id).messages[-1].text == "over"
    response = check_response(result, Status.FULFILLED, "", "over")
    assert [each.agent for each in response.subordinate_responses] == ["north"]


class Editor(BaseCallbackHandler):
    """Edits the answer of a root at the end of its run."""

    raise_error = True

    def __init__(self) -> None:
        self.session: Session | None = None

    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        if self.session and parent_run_id is None:
            [*_, answer] = outputs["messages"]
            edited = {"messages": [answer.model_copy(update={"content": "edited"})]}
            self.session.graph.update_state(self.session.config, edited)


def test_an_answer_that_is_edited_at_the_end_of_its_run_is_the_result(
    world: World, saver: SqliteCheckpointer
) -> None:
    editor = Editor()
    editor.session = Session(team({"head": ["over"]}), saver, callbacks=[editor])

    result = world.send(editor.session, "go")

    assert result.text == "edited"


def test_a_result_alone_has_the_usage_of_the_events(
    world: World, saver: SqliteCheckpointer
) -> None:
    def build_session(thread: str) -> Session:
        model = ScriptedModel(
            {
                "head": [
                    Reply("", [delegate("camp", "go")], usage=(1, 2)),
                    Reply("over", usage=(3, 4)),
                ],
                "camp": [Reply("", [Call("look")], usage=(5, 6)), Reply("seen", usage=(7, 8))],
            }
        )
        return Session(
            Agent("head", model=model, subordinates=[Agent("camp", tools=[look])]),
            saver,
            thread=thread,
        )

    result = world.send(build_session("1"), "go")

    events = list(build_session("2").send("go"))
    said = [each.usage for each in events if each.kind == "message"]
    assert (
        result.usage
        == sum(said, Usage())
        == Usage(input_tokens=16, output_tokens=20, model_calls=4)
    )


def test_asking_turn_names_the_asker(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(waiting(), saver)

    result = world.send(session, "go")

    assert (result.status, result.finished, result.response) == ("asking", False, None)
    assert result.reason == "question: an answer is needed by head/north/camp"
    assert str(result) == "head/north/camp asks: Which way?"
    [question] = result.questions
    ended = world.answer(session, {question.id: "left"})
    assert (ended.status, ended.reason) == ("finished", "")
    # The response is of the whole turn, the usage of the last run.
    assert ended.usage == Usage(model_calls=3, unknown_calls=3)
    assert ended.response is not None
    assert ended.response.usage == Usage(model_calls=7, unknown_calls=7)


def test_paused_turn_names_the_paused_agent(world: World, saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []

    def pause(_: Sequence[BaseMessage]) -> Any:
        sessions[0].pause("head/north/camp")
        return [delegate("north", "go"), delegate("south", "go")]

    head = team({"head": first(pause, "over")})
    sessions.append(session := Session(head, saver))

    result = world.send(session, "go")

    assert (result.status, result.finished, result.response) == ("paused", False, None)
    assert str(result) == result.reason == "paused: head/north/camp"
    assert world.resume(session).status == "finished"


def test_questions_come_before_pauses(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(waiting(), saver)
    world.send(session, "go")
    world.do(session, "pause", "head/north")
    [question] = session.inbox()

    held = world.answer(session, {question.id: "left"})

    assert (held.status, held.reason) == ("paused", "paused: head/north")
    assert world.resume(session).text == "over"


def test_a_run_that_is_paused_by_its_caller_says_so(saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)
    run = session.send("go")
    next(iter(run))
    run.pause()

    result = run.result()

    assert (result.status, result.finished) == ("paused", False)
    assert str(result) == "paused: the run ended after its current step; `resume` continues it"
    assert session.resume().result().status == "finished"


def test_a_turn_that_failed_can_be_resumed_and_says_so(saver: SqliteCheckpointer) -> None:
    model = ScriptedModel([ConnectionError("no line"), "works"])
    session = Session(Agent("head", model=model), saver)
    run = session.send("go")
    with pytest.raises(ConnectionError):
        run.result()

    result = run.result()

    assert (result.status, str(result)) == ("paused", "cut short: `resume` continues the turn")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(calls=5), "limit: 5 of 5 model calls"),
        (Limits(steps=9), "limit: 9 of 9 steps"),
    ],
)
def test_a_turn_that_reaches_a_limit_names_it(
    world: World, saver: SqliteCheckpointer, limits: Limits, reason: str
) -> None:
    result = world.send(Session(digging(limits), saver), "go")

    assert (result.status, result.finished, result.reason) == ("limited", False, reason)
    assert result.text == f"Not finished ({reason})."
    response = check_response(result, Status.PARTIAL, reason, "")
    assert response.subordinate_responses[0].status is Status.PARTIAL


def test_what_the_root_had_before_a_limit_is_in_its_response(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel([Reply("So far: one.", [Call("look")])])
    head = Agent("head", model=model, tools=[look], limits=Limits(calls=1))

    result = world.send(Session(head, saver), "go")

    check_response(result, Status.PARTIAL, "limit: 1 of 1 model calls", "So far: one.")


def test_a_root_that_is_refused_the_same_call_again_is_limited(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = team({"head": lambda _: Call("call_subordinate", {"message": ""})})

    result = world.send(Session(head, saver), "go")

    assert result.status == "limited"
    assert "refused 3 times in a row, as often as max_refusals allows" in result.reason
    check_response(result, Status.PARTIAL, result.reason, "")


def test_a_stopped_turn_names_the_order(world: World, saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []
    sessions.append(session := Session(stopping(sessions), saver))

    result = world.send(session, "go")

    assert (result.status, result.finished) == ("stopped", False)
    assert result.reason == "stopped: head was told to stop"
    check_response(result, Status.UNABLE, result.reason, "")
    assert result.response is not None
    assert result.response.failed


@pytest.mark.parametrize("empty", ["", " \n"])
def test_a_result_is_never_an_empty_text(
    world: World, saver: SqliteCheckpointer, empty: str
) -> None:
    head = Agent("head", model=ScriptedModel([empty]))

    result = world.send(Session(head, saver), "go")

    assert (result.status, result.text) == ("finished", empty)
    assert str(result) == result.reason == "empty: it has answered nothing"
    check_response(result, Status.UNABLE, result.reason, "")


@pytest.mark.parametrize("finished", [True, False])
def test_a_result_of_before_has_a_status(finished: bool) -> None:
    result = Result("", (), finished, Usage())

    assert str(result) == result.status == ("finished" if finished else "paused")


# The same turn again


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
@pytest.mark.parametrize("kind", ["finished", "limited", "stopped"])
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("opened", [SqliteCheckpointer, InMemorySaver])
def test_a_replay_has_status_reason_and_response(
    world: World, kind: str, dies: bool, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver: Any = opened(":memory:") if opened is SqliteCheckpointer else opened()
    sessions: list[Session] = []
    heads = {
        "finished": team({}),
        "limited": digging(Limits(calls=5)),
        "stopped": stopping(sessions),
    }
    sessions.append(session := Session(heads[kind], saver))
    before: Result | None = None
    if dies:
        with monkeypatch.context() as dying:
            dying.setattr(turns, "finish_turn", die)
            with pytest.raises(Died):
                world.send(session, "go", turn_id="1")
    else:
        before = world.send(session, "go", turn_id="1")

    again = world.send(session, "go", turn_id="1")

    assert (again.replayed, again.status, again.finished) == (True, kind, kind == "finished")
    assert again.response is not None
    assert again.response.usage.model_calls
    if before:
        assert again == replace(before, replayed=True, usage=Usage())


def test_a_turn_whose_end_was_not_stored_is_stored_before_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, saver: SqliteCheckpointer
) -> None:
    session = Session(digging(Limits(calls=5)), saver)
    with monkeypatch.context() as dying:
        dying.setattr(turns, "finish_turn", die)
        with pytest.raises(Died):
            world.send(session, "go", turn_id="1")
    world.send(session, "go on", turn_id="2")
    saver.prune([session.thread_id])

    again = world.send(session, "go", turn_id="1")

    assert (again.status, again.reason) == ("limited", "limit: 5 of 5 model calls")
    assert again.response is not None
    assert again.response.request_id == "1"


def test_a_turn_that_asks_says_so_again(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(waiting(), saver)
    before = world.send(session, "go", turn_id="1")

    again = world.send(session, "go", turn_id="1")

    assert again == replace(before, replayed=True, usage=Usage())


def forget_status(saver: SqliteCheckpointer, session: Session, turn: str) -> None:
    """Leave of a turn what earlier versions have stored of it."""
    ledger, key = saver.ledger, build_key(session.thread_id, "turn", turn)
    found = ledger.get(key)
    assert found is not None
    kept = {name: found.value[name] for name in ("task", "text")}
    ledger.compare_and_set(key, found.version, kept)


def test_a_turn_of_which_only_the_text_is_stored_is_read_from_its_checkpoints(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(digging(Limits(calls=5)), saver)
    before = world.send(session, "go", turn_id="1")
    world.send(session, "go on")
    forget_status(saver, session, "1")

    again = world.send(session, "go", turn_id="1")
    saver.prune([session.thread_id])
    pruned = world.send(session, "go", turn_id="1")

    assert again == replace(before, replayed=True, usage=Usage())
    assert (pruned.status, pruned.text, pruned.response) == ("finished", before.text, None)


def test_of_a_large_response_the_parts_are_not_kept(
    world: World, saver: SqliteCheckpointer
) -> None:
    long = "w" * (turns.MAX_RESPONSE_LENGTH + 1)
    calls = [Call("look")]

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    head = Agent(
        "head",
        model=ScriptedModel([Reply(long, calls)]),
        tools=[look],
        limits=Limits(calls=1),
    )
    session = Session(head, saver)
    world.send(session, "go", turn_id="1")

    again = world.send(session, "go", turn_id="1")

    assert again.response is not None
    assert again.response.result == long[: turns.MAX_RESPONSE_LENGTH // 2]
    assert again.response.reason == "limit: 1 of 1 model calls"


# Answers without a subordinate


def test_a_root_that_asks_no_subordinate_says_so(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team({"head": ["I know it."]}), saver)

    result = world.send(session, "go", turn_id="1")

    assert (result.status, result.text, result.reason) == ("finished", "I know it.", BY_ITSELF)
    check_response(result, Status.FULFILLED, BY_ITSELF, "I know it.")
    assert world.send(session, "go", turn_id="1").reason == BY_ITSELF


def test_an_agent_in_the_middle_that_asks_none_says_so_in_the_trace(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team({"north": ["I know it."]}), saver)

    result = world.send(session, "go")

    said = "no subordinate was asked: north answered by itself"
    assert result.response is not None
    assert [each.reason for each in result.response.subordinate_responses] == [said, ""]
    assert said in session.trace().text
    assert told(session) == ["I know it.", "south is done"], "its superior's model reads the answer"
    assert result.reason == ""


def test_a_root_is_judged_by_the_turn(world: World, saver: SqliteCheckpointer) -> None:
    replies: list[Any] = [
        delegate("south", "go"),
        "over",
        "as before",
        delegate("south", "more"),
        "over",
    ]
    session = Session(team({"head": per_conversation(replies), "south": ["done", "done"]}), saver)

    reasons = [world.send(session, "go").reason for _ in range(3)]

    assert reasons == ["", BY_ITSELF, ""]


def test_a_call_that_was_refused_asks_no_subordinate(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team({"head": [Call("call_subordinate", {}), "I know it."]}), saver)

    assert world.send(session, "go").reason == BY_ITSELF


def test_an_agent_with_tools_or_without_subordinates_may_answer_by_itself(
    world: World, saver: SqliteCheckpointer
) -> None:
    with_tools = replace(team({"head": ["I know it."]}), tools=[look])
    alone = Agent("head", model=ScriptedModel(["I know it."]))

    for number, head in enumerate((with_tools, alone)):
        assert world.send(Session(head, saver, thread=str(number)), "go").reason == ""


def test_a_result_is_stored_in_a_file_and_read_by_another_process(tmp_path: Path) -> None:
    with Session(digging(Limits(calls=5)), tmp_path / "t.sqlite") as session:
        before = session.send("go", turn_id="1").result()
    with Session(digging(Limits(calls=5)), tmp_path / "t.sqlite") as session:
        again = session.send("go", turn_id="1").result()

    assert again == replace(before, replayed=True, usage=Usage())
