"""Each cell of the table in ``docs/guarantees.md``, tried: it says no more and no less."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import interrupt

from echelons import Agent, Budget, Limits, Permissions, Spawn, ThreadStore
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.errors import (
    CheckpointTampered,
    LeaseLost,
    QuestionError,
    SessionNeeded,
    ThreadBusy,
)
from echelons.monitors import Monitor
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.scenarios.drivers.watched import call_when_told
from tests.scenarios.drivers.ways import THREAD, AnySaver, InSession, OnServer, OurSaver, Way
from tests.told_lines import get_last, is_said, list_spawned, without_told

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
WAYS: tuple[type[Way], ...] = (AnySaver, OurSaver, InSession, OnServer)
Moving = Callable[[], None]
Row = Callable[[Way, Moving], bool]


class Cut(BaseException):
    """Stands for a process that dies: no tool and no model gets to see it."""


def ask(question: str) -> str:
    """Ask a human.

    Args:
        question: What to ask.
    """
    return f"they said {interrupt(question)}"


def told(messages: Sequence[BaseMessage]) -> str:
    return f"told: {without_told(get_last(messages).text)}"


def asking(limits: Limits | None = None) -> Agent:
    """Return a tree whose lowest asks; its root says what it was told."""

    def of(step: Any) -> Callable[[Sequence[BaseMessage]], Any]:
        def play(messages: Sequence[BaseMessage]) -> Any:
            return step if isinstance(get_last(messages), HumanMessage) else told(messages)

        return play

    model = ScriptedModel(
        {"head": of(delegate("scout", "look")), "scout": of(Call("ask", {"question": "Sure?"}))}
    )
    scout = Agent("scout", tools=[ask])
    return Agent("head", model=model, subordinates=[scout], limits=limits or Limits())


def pending(way: Way) -> list[Any]:
    """Return what is asked, as LangGraph itself tells."""
    from echelons.checkpoints.threads.answer_outbox import read_open_questions

    return list(read(way, read_open_questions(THREAD)))


def read(way: Way, plan: Any) -> Any:
    """Return the result of a plan on the saver of a way."""
    from echelons.checkpoints.queries import arun_plan, run_plan

    if isinstance(way, OnServer):
        return way.run(arun_plan(way.saver, plan))
    return run_plan(way.saver, plan)


# One function for each row: whether it is kept, with or without a move to another process.


def a_question_at_any_depth_can_be_answered_later(way: Way, move: Moving) -> bool:
    assert way.send(asking(), "go") == ""
    move()
    [question] = pending(way)
    text = way.answer(asking(), {question.id: "yes"})
    return question.path == "head/scout" and text == "told: told: they said yes"


def every_checkpoint_names_its_agent(way: Way, move: Moving) -> bool:
    way.send(asking(), "go")
    move()
    rows = way.run_sql(
        "SELECT json_extract(CAST(metadata AS TEXT), '$.agent_path'),"
        " json_extract(CAST(metadata AS TEXT), '$.agent_thread_id') FROM checkpoints"
    )
    return {path for path, _ in rows} == {"head", "head/scout"} and all(each for _, each in rows)


def a_subordinate_remembers_its_conversation(way: Way, move: Moving) -> bool:
    def counting(messages: Sequence[BaseMessage]) -> str:
        return f"{sum(isinstance(each, HumanMessage) for each in messages)} tasks"

    def agent() -> Agent:
        model = ScriptedModel(
            {
                "head": lambda messages: (
                    delegate("scout", "look")
                    if isinstance(get_last(messages), HumanMessage)
                    else told(messages)
                ),
                "scout": counting,
            }
        )
        return Agent("head", model=model, subordinates=[Agent("scout")])

    way.send(agent(), "go")
    move()
    return way.send(agent(), "go") == "told: 2 tasks"


def conversations_can_be_read_with_sql(way: Way, move: Moving) -> bool:
    way.send(asking(), "go")
    move()
    try:
        asked = way.run_sql(
            "SELECT json_extract(data, '$.value') FROM events WHERE kind = 'question'"
        )
        agents = way.run_sql("SELECT DISTINCT agent FROM threads ORDER BY agent")
    except Exception as error:
        assert "no such table" in str(error)
        return False
    return (asked, agents) == ([("Sure?",)], [("head",), ("scout",)])


def an_interrupted_tool_call_is_asked_about(way: Way, move: Moving) -> bool:
    booked = []

    def book() -> str:
        """Book a room."""
        booked.append("room")
        if len(booked) == 1:
            raise Cut
        return "booked"

    def agent() -> Agent:
        return Agent("head", model=ScriptedModel([Call("book"), "done"]), tools=[book])

    with contextlib.suppress(Cut):
        way.send(agent(), "go")
    move()
    way.resume(agent())
    return len(booked) == 1 and [each.value["kind"] for each in pending(way)] == ["outcome_unknown"]


def limits_hold_across_a_resume(way: Way, move: Moving) -> bool:
    agent = asking(Limits(calls=2))
    assert way.send(agent, "go") == ""
    move()
    [question] = pending(way)
    text = way.answer(asking(Limits(calls=2)), {question.id: "yes"})
    return text == "Not finished (limit: 2 of 2 model calls)."


def budgets_hold_across_a_resume(way: Way, move: Moving) -> bool:
    permissions = Permissions(budget=Budget(calls=2))

    def agent() -> Agent:
        return replace(asking(), permissions=permissions)

    assert way.send(agent(), "go") == ""
    move()
    [question] = pending(way)
    text = way.answer(agent(), {question.id: "yes"})
    return text == "Not finished (budget: 2 of 2 model calls)."


def a_damaged_row_raises_an_error_of_its_own(way: Way, move: Moving) -> bool:
    way.send(asking(), "go")
    move()
    way.run_sql("UPDATE checkpoints SET checkpoint = x'81a17680'")
    try:
        way.resume(asking())
    except CheckpointTampered:
        return True
    except Exception:
        return False
    return False


def a_turn_that_is_submitted_again_runs_once(way: Way, move: Moving) -> bool:
    model = ScriptedModel(["one", "two"])
    agent = Agent("head", model=model)
    first = way.send(agent, "go", turn="1")
    move()
    return way.send(agent, "go", turn="1") == first and len(model.calls) == 1


def a_thread_has_one_run_at_a_time(way: Way, move: Moving) -> bool:
    run = way.begin(asking(), "go")
    next(run)
    other = way.another()
    try:
        other.send(asking(), "more")
    except ThreadBusy:
        return True
    finally:
        other.close()
        list(run)
    return False


def a_run_that_lost_its_lease_writes_nothing(way: Way, move: Moving) -> bool:
    run = way.begin(asking(), "go")
    next(run)
    other = way.another()
    lease = get_ledger(other.saver).take_over(build_key(THREAD))
    before = way.run_sql("SELECT count(*) FROM checkpoints")
    try:
        list(run)
    except LeaseLost:
        return way.run_sql("SELECT count(*) FROM checkpoints") == before
    finally:
        lease.release()
        other.close()
    return False


def an_answer_that_does_not_fit_is_refused(way: Way, move: Moving) -> bool:
    way.send(asking(), "go")
    [question] = pending(way)
    way.answer(asking(), {question.id: "yes"})
    way.send(asking(), "go")
    move()
    try:
        way.answer(asking(), {question.id: "no"})
    except QuestionError:
        return len(pending(way)) == 1
    return False


def agents_are_stopped_and_paused_by_their_path(way: Way, move: Moving) -> bool:
    way.send(asking(), "go")
    move()
    if not isinstance(way, InSession):
        return False
    way.session(asking()).stop("head/scout")
    text = way.session(asking()).resume().result().text
    return pending(way) == [] and "stopped" in text


def growing() -> Agent:
    """Return a head that makes a scout, which asks, and calls it again when it is told to."""

    def lead(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        if not isinstance(last, HumanMessage):
            return told(messages)
        made = {"role": "scout", "message": "look", "keep": True, "contact_user": True}
        if last.text == "go":
            return Call("spawn_subordinate", made)
        # The names of those that are there stand in the prompt.
        [name] = list_spawned(messages)
        return delegate(name, "more")

    def scout(messages: Sequence[BaseMessage]) -> Any:
        if str(get_last(messages).text) == "look":
            return Call("ask_user", {"question": "Sure?"})
        tasks = [each for each in messages if is_said(each)]
        return f"{len(tasks)} tasks"

    rules = Permissions(contact_user=True, spawn=Spawn())
    model = ScriptedModel({"head": lead, "scout": scout})
    return Agent("head", model=model, permissions=rules, theme="birds")


def agents_that_were_made_at_run_time_are_there_again(way: Way, move: Moving) -> bool:
    assert way.send(growing(), "go") == ""
    move()
    [question] = pending(way)
    assert "1 tasks" in way.answer(growing(), {question.id: "yes"})
    move()
    return "2 tasks" in way.send(growing(), "more")


def such_agents_keep_their_names_for_people(way: Way, move: Moving) -> bool:
    from echelons.checkpoints.threads.agent_states import read_registry

    way.send(growing(), "go")
    _, before = read(way, read_registry(THREAD, {})).agents
    move()
    _, after = read(way, read_registry(THREAD, {})).agents
    return bool(before.alias and after.alias == before.alias)


def who_was_dismissed_begins_nothing(way: Way, move: Moving) -> bool:
    from echelons.checkpoints.threads.dismissal import dismiss_agent

    assert way.send(asking(), "go") == ""
    read(way, dismiss_agent(THREAD, "head/scout", {}, "anna", graceful=False))
    move()
    # Its question has left the inbox.
    if pending(way):
        return False
    text = way.resume(asking())
    return text == "told: [unable] dismissed: head/scout was dismissed"


def an_odd_reply_of_a_model_ends_no_thread(way: Way, move: Moving) -> bool:
    odd = Call("look up", "[1]", id="call:1")

    def tree() -> Agent:
        # The model refuses what any provider would.
        return Agent("head", model=ScriptedModel([[odd, odd], "", "fine"]))

    way.send(tree(), "go")
    move()
    return way.send(tree(), "go on") in ("", "fine")


def a_length_that_a_model_refused_is_not_tried_again(way: Way, move: Moving) -> bool:
    refused: list[int] = []

    def answer(messages: Sequence[BaseMessage]) -> Any:
        if (size := sum(len(str(each.content)) for each in messages)) > 6000:
            refused.append(size)
            raise ValueError("400 context_length_exceeded")
        return "read"

    def tree() -> Agent:
        return Agent("head", model=ScriptedModel(answer))

    assert way.send(tree(), f"Read {'x' * 9000}") == "read"
    count = len(refused)
    assert count
    move()
    return way.send(tree(), f"And {'y' * 9000}") == "read" and len(refused) == count


def a_hidden_message_is_shown_to_no_model(way: Way, move: Moving) -> bool:
    from echelons.checkpoints.threads.repair import list_hideable, repair_thread

    def answer(messages: Sequence[BaseMessage]) -> Any:
        return "seen" if any("poison" in str(each.content) for each in messages) else "not seen"

    def tree() -> Agent:
        return Agent("head", model=ScriptedModel(answer))

    assert way.send(tree(), f"poison {'x' * 30_000}") == "seen"
    [task] = [each for each in read(way, list_hideable(THREAD)) if each.kind == "human"]
    with get_ledger(way.saver).lease(build_key(THREAD)) as lease:
        read(way, repair_thread(THREAD, "t", [task.id], "anna", lease.fence, undo=False))
    move()
    return way.send(tree(), "hello") == "not seen"


def an_alert_of_a_monitor_is_told_once(way: Way, move: Moving) -> bool:
    def tree() -> Agent:
        stored = Event()
        call_when_told(way.saver, stored.set)

        def look() -> str:
            """Look, until the alert is stored."""
            assert stored.wait(60)
            return "seen"

        def watch(messages: Sequence[BaseMessage]) -> Any:
            new = "You have said" not in messages[-1].text
            return Call("alert", {"path": "head", "reason": "It looks."}) if new else "nothing"

        def work(messages: Sequence[BaseMessage]) -> Any:
            done = sum(each.type == "tool" for each in messages)
            told = sum("It looks." in each.text for each in messages)
            return [Call("look"), Call("ask", {"question": "Sure?"}), f"told {told}"][done]

        return Agent(
            "head",
            model=ScriptedModel({"head": work, "watch": watch}),
            tools=[look, ask],
            monitors=[Monitor("watch", every_events=1)],
        )

    if not isinstance(way, InSession):
        with pytest.raises(SessionNeeded):
            way.send(tree(), "go")
        return False
    way.send(tree(), "go")
    move()
    alert, question = sorted(pending(way), key=lambda each: each.asker == "head")
    said: str = way.answer(tree(), {question.id: "yes"})
    return (said, alert.asker) == ("told 1", "watch")


def an_answer_that_was_cut_off_says_so(way: Way, move: Moving) -> bool:
    def tree() -> Agent:
        def head(messages: Sequence[BaseMessage]) -> Any:
            is_new = isinstance(get_last(messages), HumanMessage)
            return delegate("scout", "look") if is_new else told(messages)

        def scout(messages: Sequence[BaseMessage]) -> Any:
            has_asked = any(each.type == "tool" for each in messages)
            half = Reply("half", finish_reason="length")
            return half if has_asked else Call("ask", {"question": "Sure?"})

        model = ScriptedModel({"head": head, "scout": scout})
        return Agent("head", model=model, subordinates=[Agent("scout", tools=[ask])])

    way.send(tree(), "go")
    move()
    [question] = pending(way)
    return way.answer(tree(), {question.id: "yes"}).startswith("told: [partial] length: ")


def the_mark_of_notices_stays(way: Way, move: Moving) -> bool:
    marks: list[list[str]] = []

    def head(messages: Sequence[BaseMessage]) -> str:
        marks.append(re.findall(r"Only lines with (~\d{12}) ", str(messages[0].text)))
        return "done"

    def agent() -> Agent:
        return Agent("head", model=ScriptedModel({"head": head}), subordinates=[Agent("scout")])

    way.send(agent(), "go")
    move()
    way.send(agent(), "go")
    return len(marks[0]) == 1 and marks[0] == marks[-1]


def a_request_begins_with_the_one_before(way: Way, move: Moving) -> bool:
    requests: list[list[str]] = []
    scout = {"role": "scout", "message": "look", "keep": True}

    def head(messages: Sequence[BaseMessage]) -> Any:
        requests.append([str(each.content) for each in messages])
        if not isinstance(get_last(messages), HumanMessage):
            return "done"
        made = list_spawned(messages)
        return delegate(made[0], "more") if made else Call("spawn_subordinate", scout)

    def agent() -> Agent:
        model = ScriptedModel({"head": head, "*": lambda _: "seen"})
        rules = Permissions(spawn=Spawn())
        return Agent("head", model=model, permissions=rules, subordinates=[Agent("clerk")])

    way.send(agent(), "go")
    move()
    way.send(agent(), "go")
    pairs = [*pairwise(requests)]
    return len(pairs) == 3 and all(new[: len(old)] == old for old, new in pairs)


ROWS: tuple[Row, ...] = (
    a_question_at_any_depth_can_be_answered_later,
    every_checkpoint_names_its_agent,
    a_subordinate_remembers_its_conversation,
    conversations_can_be_read_with_sql,
    a_damaged_row_raises_an_error_of_its_own,
    an_interrupted_tool_call_is_asked_about,
    limits_hold_across_a_resume,
    budgets_hold_across_a_resume,
    a_turn_that_is_submitted_again_runs_once,
    a_thread_has_one_run_at_a_time,
    a_run_that_lost_its_lease_writes_nothing,
    an_answer_that_does_not_fit_is_refused,
    agents_are_stopped_and_paused_by_their_path,
    agents_that_were_made_at_run_time_are_there_again,
    such_agents_keep_their_names_for_people,
    who_was_dismissed_begins_nothing,
    an_odd_reply_of_a_model_ends_no_thread,
    a_length_that_a_model_refused_is_not_tried_again,
    a_hidden_message_is_shown_to_no_model,
    an_alert_of_a_monitor_is_told_once,
    an_answer_that_was_cut_off_says_so,
    the_mark_of_notices_stays,
    a_request_begins_with_the_one_before,
)


def promised() -> dict[str, list[str]]:
    """Return the table of the docs: the cells of each row, by its first."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: row[1:] for row in rows if len(row) == 1 + len(WAYS)}


TABLE = promised()


def test_the_table_has_each_row_once_and_no_other() -> None:
    words = [row.__name__.replace("_", " ") for row in ROWS]
    rows = list(TABLE)[2:]
    assert [each.lower() for each in rows] == words


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Makes folders; the server's factory takes its database from there too."""

    def made(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("ECHELONS_DB", str(folder / "t.sqlite"))
        return folder

    return made  # type: ignore[return-value]


@pytest.mark.parametrize("column", range(len(WAYS)), ids=[each.__name__ for each in WAYS])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_way_keeps_what_the_table_says(
    home: Callable[[str], Path], row: Row, column: int
) -> None:
    durable, here = WAYS[column](home("moving")), None
    if row(durable, durable.move):
        found = "yes"
    else:
        here = WAYS[column](home("staying"))
        found = "in this process" if row(here, lambda: None) else "no"
    for each in filter(None, (durable, here)):
        each.close()

    told = next(cells for name, cells in TABLE.items() if _slug(name) == row.__name__)
    assert found == told[column]


def test_a_subordinate_without_a_saver_is_not_asked_to_remember() -> None:
    def script(messages: Sequence[BaseMessage]) -> Any:
        asked = sum(each.type == "ai" for each in messages)
        return delegate("scout", f"look {asked}") if asked < 2 else told(messages)

    model = ScriptedModel({"head": script, "scout": ["seen"]})
    agent = Agent("head", model=model, subordinates=[Agent("scout")])

    done = agent.compile().invoke({"messages": [("user", "go")]})

    assert any("no_checkpointer" in str(each.text) for each in done["messages"])


@pytest.mark.parametrize(("way", "level"), [(AnySaver, 2), (OurSaver, 1), (OnServer, 1)])
def test_how_much_of_the_machine_may_die(
    home: Callable[[str], Path], way: type[Way], level: int
) -> None:
    """SQLite's FULL, 2, survives a power cut; its NORMAL, 1, survives the process."""
    opened = way(home("level"))
    saver: Any = opened.saver
    assert saver.conn.execute("PRAGMA synchronous").fetchone() == (level,)
    opened.close()


def test_threads_of_a_graph_and_of_a_session_are_the_same(
    home: Callable[[str], Path],
) -> None:
    """What one way began, another goes on with."""
    graph = OurSaver(home("both"))
    graph.send(asking(), "go")
    [question] = pending(graph)
    graph.close()
    session = InSession(graph.file.parent)

    assert session.answer(asking(), {question.id: "yes"}) == "told: told: they said yes"
    assert [each.id for each in ThreadStore(session.saver).roots()] == [THREAD]
    session.close()


def _slug(name: str) -> str:
    return name.lower().replace(" ", "_")
