"""The board: what each agent does, told by the events of a run."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import Agent, Session
from echelons.cli.board import AgentBoard, AgentState
from echelons.delegation.request import Usage
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.runtime.session_run import Result
from echelons.testing import FakeClock, ScriptedModel, delegate


def event(path: str, kind: RunEventKind, content: str = "", **data: Any) -> RunEvent:
    return RunEvent(path, kind, content, data=data)


def asks(path: str, whom: Any, call: str = "1") -> RunEvent:
    arguments = {"subordinate": whom, "message": "look"}
    return event(path, RunEventKind.DELEGATION, "call_subordinate", id=call, arguments=arguments)


def responds(path: str, status: str, call: str = "1", reason: str = "") -> RunEvent:
    return event(
        path, RunEventKind.RESPONSE, "seen", id=call, status=status, reason=reason, final=True
    )


def doings(board: AgentBoard) -> dict[str, str]:
    return {row.path: row.state for row in board.list_rows()}


def board_of(*events: RunEvent) -> AgentBoard:
    board = AgentBoard(FakeClock().now)
    for each in events:
        board.apply_event(each)
    return board


def test_a_superior_waits_while_its_subordinates_work_and_then_goes_on() -> None:
    board = board_of(
        event("head", RunEventKind.TASK, "go"), asks("head", "a"), asks("head", "b", "2")
    )
    assert doings(board) == {"head": "waiting", "head/a": "waiting", "head/b": "waiting"}

    board.apply_event(event("head/a", RunEventKind.TASK, "look"))
    board.apply_event(responds("head/a", "fulfilled"))
    assert doings(board) == {"head": "waiting", "head/a": "done", "head/b": "waiting"}

    board.apply_event(responds("head/b", "unable", "2", "all booked"))
    assert doings(board) == {"head": "running", "head/a": "done", "head/b": "unable"}
    assert board.list_rows()[2].detail == "all booked"


@pytest.mark.parametrize(
    ("status", "doing"),
    [("fulfilled", "done"), ("partial", "partial"), ("needs_input", "needs input")],
)
def test_a_response_says_how_an_agent_ended(status: str, doing: str) -> None:
    board = board_of(event("head/a", RunEventKind.TASK), responds("head/a", status))

    assert doings(board)["head/a"] == doing


def test_monitor_gives_no_answer_and_is_never_left_running() -> None:
    board = board_of(
        event("head", RunEventKind.TASK),
        event("head/watch", RunEventKind.MESSAGE, "nothing", model="m", monitor=True),
        event("head/watch", RunEventKind.ALERT, "It loops.", about="head/scout", decision="stop"),
    )

    assert doings(board) == {"head": "running", "head/watch": "done"}
    assert board.list_rows()[1].detail == "alerts about head/scout (stop): It loops."


def test_time_is_counted_from_an_agents_beginning_to_its_end() -> None:
    clock = FakeClock()
    board = AgentBoard(clock.now)
    board.apply_event(asks("head", "a"))
    clock.advance(1)
    board.apply_event(event("head/a", RunEventKind.TASK))
    clock.advance(2)
    assert board.list_rows()[1].elapsed_seconds(board.now) == 2
    board.apply_event(responds("head/a", "fulfilled"))
    clock.advance(3)

    assert board.list_rows()[1].elapsed_seconds(board.now) == 2
    assert board.seconds == 6


def test_tokens_are_those_of_an_agents_own_replies() -> None:
    cost = Usage(input_tokens=100, output_tokens=20, model_calls=1)
    board = board_of(
        RunEvent("head/a", RunEventKind.MESSAGE, "x", usage=cost, data={"model": "m"}),
        RunEvent("head/a", RunEventKind.MESSAGE, "y", usage=cost, data={"model": "m"}),
        responds("head/a", "fulfilled"),
    )

    assert [(row.path, row.tokens) for row in board.list_rows()] == [("head", 0), ("head/a", 240)]
    assert board.models == {"m"}


def test_tokens_of_the_offline_planner_cost_nothing() -> None:
    cost = Usage(input_tokens=100, output_tokens=20, model_calls=1)
    board = board_of(
        *(
            RunEvent("head", RunEventKind.MESSAGE, "x", usage=cost, data={"model": model})
            for model in ("offline planner", "m")
        )
    )

    assert [row.tokens for row in board.list_rows()] == [120]
    assert board.models == {"offline planner", "m"}


def test_an_agent_that_goes_on_in_the_middle_is_shown_below_its_superiors() -> None:
    board = board_of(event("head/a/b", RunEventKind.TOOL_RESULT, "yes", id="9", name="ask"))

    assert doings(board) == {"head": "waiting", "head/a": "waiting", "head/a/b": "running"}


def test_agents_stand_below_their_superiors_in_the_order_of_their_calls() -> None:
    board = board_of(asks("head", "b"), asks("head", "a", "2"), asks("head/b", "c"))

    assert [row.path for row in board.list_rows()] == ["head", "head/b", "head/b/c", "head/a"]


def test_call_of_missing_agent_leaves_no_agent_waiting() -> None:
    board = board_of(event("head", RunEventKind.TASK), asks("head", "ghost"))
    assert "head/ghost" in doings(board)

    board.apply_event(
        event("head", RunEventKind.TOOL_RESULT, "no such", id="1", name="call_subordinate")
    )

    assert doings(board) == {"head": "running"}


@pytest.mark.parametrize("whom", [None, 3, "a/b", "[bold]", "x" * 99])
def test_what_a_model_calls_a_subordinate_is_no_row_unless_it_is_a_name(whom: Any) -> None:
    board = board_of(event("head", RunEventKind.TASK), asks("head", whom))

    assert doings(board) == {"head": "waiting"}


def test_the_roots_words_are_kept_until_its_message_is_whole() -> None:
    board = board_of(
        event("head", RunEventKind.TOKEN, "Go "), event("head/a", RunEventKind.TOKEN, "no")
    )
    board.apply_event(event("head", RunEventKind.TOKEN, "to Rome"))
    assert board.root_text == "Go to Rome"

    board.apply_event(event("head", RunEventKind.MESSAGE, "Go to Rome", model="m"))
    assert board.root_text == ""


def test_a_question_and_an_error_stop_their_agent() -> None:
    board = board_of(
        event("head/a", RunEventKind.TASK),
        event("head/a", RunEventKind.QUESTION, "?", id="q", value={"question": "Book it?"}),
        event("head/b", RunEventKind.TASK),
        event("head/b", RunEventKind.ERROR, "ValueError('x')"),
    )

    assert doings(board) == {"head": "waiting", "head/a": "asking", "head/b": "failed"}
    assert board.list_rows()[1].detail == "Book it?"


def test_an_agent_goes_on_when_all_its_questions_are_answered() -> None:
    ask = [
        event("head/a", RunEventKind.QUESTION, "?", id=f"q{number}", value=f"Sure {number}?")
        for number in range(2)
    ]
    board = board_of(*ask)

    assert board.mark_answered("q0") == "head/a"
    assert doings(board)["head/a"] == "asking"
    assert [each.text for each in board.list_questions()] == ["Sure 1?"]
    board.mark_answered("q1")
    assert doings(board)["head/a"] == "running"
    assert board.list_questions() == []


def test_a_dismissed_branch_ends_and_its_questions_are_withdrawn() -> None:
    board = board_of(
        event("head", RunEventKind.TASK, "go"),
        asks("head", "a"),
        event("head/a", RunEventKind.TASK, "look"),
        asks("head/a", "b", "2"),
        event("head/a/b", RunEventKind.QUESTION, id="q", value="Where?"),
        event("head/a", RunEventKind.ORDER, "dismiss", order="dismiss", by="anna", graceful=True),
    )
    assert (doings(board)["head/a/b"], list(board.questions)) == ("asking", ["q"])

    board.apply_event(
        event("head/a", RunEventKind.ORDER, "dismiss", order="dismiss", by="anna", graceful=False)
    )
    board.apply_event(responds("head/a", "unable", reason="dismissed: head/a was dismissed"))

    assert doings(board) == {"head": "running", "head/a": "dismissed", "head/a/b": "dismissed"}
    assert not board.questions


def test_a_run_that_is_stopped_leaves_its_agents_stopped() -> None:
    board = board_of(event("head", RunEventKind.TASK), event("head/a", RunEventKind.TASK))
    board.apply_result(Result("", (), finished=False, usage=Usage()))

    assert set(doings(board).values()) == {AgentState.STOPPED}


def test_agent_below_one_cut_short_is_not_done() -> None:
    board = board_of(
        event("head", RunEventKind.TASK, "go"),
        event("head/a", RunEventKind.TASK, "look"),
        event("head/a/b", RunEventKind.TASK, "look"),
        responds("head/a", "unable", reason="stopped: others have answered"),
    )

    board.apply_result(Result("seen", (), finished=True, usage=Usage()))

    assert doings(board) == {"head": "done", "head/a": "unable", "head/a/b": "stopped"}


def test_every_agent_has_ended_after_a_real_run() -> None:
    model = ScriptedModel(
        {
            "head": [[delegate("a", "x"), delegate("a", "y", reset=True)], "Done."],
            "a": [delegate("b", "z"), "A."],
            "b": ["B."],
        }
    )
    tree = Agent("head", model=model, subordinates=[Agent("a", subordinates=[Agent("b")])])
    board = AgentBoard(FakeClock().now)
    with Session(tree, ":memory:") as session:
        run = session.send("Go")
        for each in run:
            board.apply_event(each)
        board.apply_result(run.result())

    assert doings(board) == {"head": "done", "head/a": "done", "head/a/b": "done"}


def test_what_a_tool_writes_is_what_its_agent_is_doing() -> None:
    board = board_of(
        event("head", RunEventKind.TASK, "go"),
        event("head", RunEventKind.CUSTOM, "3 of 7\nfiles", value="3 of 7\nfiles"),
    )

    [row] = board.list_rows()
    assert (row.state, row.detail) == (AgentState.RUNNING, "writes: 3 of 7 files")
