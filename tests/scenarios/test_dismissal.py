"""Dismissing agents: who was dismissed does nothing more, for good, nor does anyone below it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.coordination.dismissal_ledger import DISMISSAL
from echelons.checkpoints.ledger import build_key
from echelons.errors import NothingToResume, ThreadNotFound, UnknownPath
from echelons.testing import Call, ScriptedModel, delegate, per_conversation
from echelons.tree.agent_registry import AgentState
from echelons.workspace_tools import file_tools, note_tools
from tests.error_codes import raises_code
from tests.scenarios.drivers.camp import asked, first, look, team, told, waiting
from tests.told_lines import is_said, read_whole

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

DISMISSED = "dismissed: head/north was dismissed"


def states(session: Session) -> dict[str, str]:
    return {each.path: str(each.state) for each in session.registry().agents}


@pytest.mark.parametrize("graceful", [True, False])
def test_run_reports_a_dismissal_once(saver: SqliteCheckpointer, graceful: bool) -> None:
    def dig(_: Sequence[BaseMessage]) -> str:
        session.dismiss("head/north", by="anna", graceful=graceful)
        return "dug"

    session = Session(team({"camp": dig}), saver)
    first_run = [*session.send("go")]
    second_run = [*session.send("go on")]

    [order] = [each for each in first_run if each.kind == "order"]
    assert (order.path, order.content, order.data["by"]) == ("head/north", "dismiss", "anna")
    assert order.data["graceful"] is graceful
    assert order.data["at"]
    assert not [each for each in second_run if each.kind == "order"]


async def test_what_runs_in_an_event_loop_is_cut_short_and_its_siblings_go_on(
    saver: SqliteCheckpointer,
) -> None:
    began, south = asyncio.Event(), asyncio.Event()
    cancelled: list[str] = []

    async def hang(_: Sequence[BaseMessage]) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("camp")
            raise
        return "never said"

    async def wait(_: Sequence[BaseMessage]) -> str:
        await south.wait()
        return "south is done"

    head = team({"camp": hang, "south": wait})
    session = Session(head, saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await began.wait()

    done = await session.adismiss("head/north", by="anna")
    south.set()
    result = await run

    assert done.agents == ("head/north", "head/north/camp")
    assert done.is_new
    assert (done.dismissal.by, done.heir) == ("anna", "head")
    assert cancelled == ["camp"]
    assert (result.status, result.text) == ("finished", "over")
    assert told(session) == [f"[unable] {DISMISSED}", "south is done"]
    assert asked(head, "north") == asked(head, "camp") == 1


async def test_dismissal_by_another_connection_reaches_hanging_agent(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def hang(_: Sequence[BaseMessage]) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never said"

    async with Session(team({"camp": hang}), tmp_path / "t.sqlite") as session:
        run = asyncio.create_task((await session.asend("go")).result())
        await began.wait()
        with Session(team({}), tmp_path / "t.sqlite") as other:
            other.dismiss("head/north")
        result = await run

        assert result.text == "over"
        assert told(session)[0] == f"[unable] {DISMISSED}"


def test_in_threads_nothing_begins_any_more_and_its_siblings_go_on(
    saver: SqliteCheckpointer,
) -> None:
    dismissed = threading.Event()
    ran: list[str] = []

    @tool
    def dig() -> str:
        """Dig."""
        ran.append("dig")
        return "dug"

    def dismissing(_: Sequence[BaseMessage]) -> Any:
        session.dismiss("head/north")
        dismissed.set()
        return [Call("dig"), Call("dig")]

    def wait(_: Sequence[BaseMessage]) -> Any:
        dismissed.wait()
        return "south is done"

    head = team({"camp": dismissing, "south": wait}, [dig])
    session = Session(head, saver)

    assert session.send("go").result().text == "over"

    assert ran == []
    assert told(session, "camp") == []
    assert told(session) == [f"[unable] {DISMISSED}", "south is done"]


def test_a_dismissal_holds_in_all_later_turns_and_for_all_below(
    world: World, saver: SqliteCheckpointer
) -> None:
    twice = [[delegate("north", "go"), delegate("south", "go")], "over"] * 2
    head = team({"head": twice})
    session = Session(head, saver)
    world.send(session, "go")

    world.do(session, "dismiss", "head/north")
    with Session(team({"head": twice[2:]}), saver) as again:
        result = world.send(again, "go again")

        assert result.text == "over"
        assert told(again)[2:] == [f"[unable] {DISMISSED}", "south is done"]
        assert states(again) == {
            "head": "done",
            "head/north": "dismissed",
            "head/north/camp": "dismissed",
            "head/south": "done",
        }


def test_dismissed_agent_is_not_replaced_by_another(
    world: World, saver: SqliteCheckpointer
) -> None:
    def dismissing(_: Sequence[BaseMessage]) -> Any:
        session.dismiss("head/first")
        return "too late"

    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "find a hotel"}), "over"],
            "first": dismissing,
            "second": ["asked instead"],
        }
    )
    able = {"hotel": 0.9}
    team_ = [Agent("first", capabilities=able), Agent("second", capabilities={"hotel": 0.5})]
    session = Session(Agent("head", model=model, subordinates=team_), saver)

    world.send(session, "go")

    assert told(session) == ["[unable] dismissed: head/first was dismissed"]
    assert not [call for call in model.calls if call.agent == "second"]


def test_task_is_not_routed_to_dismissed_agent(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "find a hotel"}), "over"],
            "first": ["never asked"],
            "second": ["found"],
        }
    )
    able = {"hotel": 0.9}
    team_ = [Agent("first", capabilities=able), Agent("second", capabilities={"hotel": 0.5})]
    session = Session(Agent("head", model=model, subordinates=team_), saver)
    world.do(session, "dismiss", "head/first")

    world.send(session, "go")

    assert told(session) == ["found"]


def test_questions_mail_and_tasks_for_dismissed_agent_are_refused(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    [question] = world.send(session, "go").questions

    done = world.do(session, "dismiss", "head/north", by="anna")

    assert done.questions == (question.id,)
    assert world.do(session, "inbox") == []
    with raises_code("agent_dismissed", match="'head/north' was dismissed by 'anna' at "):
        world.answer(session, {question.id: "left"})
    for method in ("send_message", "steer"):
        with raises_code("agent_dismissed"):
            world.do(session, method, "head/north/camp", "listen")
    assert world.resume(session).text == "over"
    assert told(session)[0] == f"[unable] {DISMISSED}"
    with raises_code("agent_dismissed"):
        world.answer(session, {question.id: "left"})
    with raises_code("agent_dismissed"):
        world.send(session, "dig", to="head/north")


def test_a_dismissed_root_closes_the_thread(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(waiting(), saver)
    world.send(session, "go", turn_id="1")

    done = world.do(session, "dismiss", "head", by="anna")
    assert done.heir == "the user"
    with raises_code("agent_dismissed", match="another thread"):
        world.send(session, "something else")
    result = world.resume(session)

    assert (result.status, result.finished) == ("dismissed", False)
    assert result.reason == "dismissed: head was dismissed"
    assert result.response is not None
    assert result.response.status == "unable"
    again = world.send(session, "go", turn_id="1")
    assert (again.status, again.replayed) == ("dismissed", True)
    with raises_code("agent_dismissed"):
        world.send(session, "something else")
    with pytest.raises(NothingToResume):
        world.resume(session)
    assert set(states(session).values()) == {"dismissed"}


def test_a_graph_begins_nothing_on_a_thread_whose_root_was_dismissed(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = team({})
    session = Session(head, saver)
    world.do(session, "dismiss", "head")

    out = world.invoke(head.compile(saver), {"messages": [HumanMessage("go")]}, session.config)

    assert out["messages"][-1].text == "Not finished (dismissed: head was dismissed)."
    assert asked(head, "head") == 0


def test_what_is_not_there_is_not_dismissed(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)

    with pytest.raises(UnknownPath, match="'head/west'"):
        world.do(session, "dismiss", "head/west")
    with pytest.raises(UnknownPath):
        world.do(session, "dismiss", 7)
    with raises_code("invalid_option", match="graceful"):
        world.do(session, "dismiss", "head", graceful=1)

    assert not saver.ledger.list_keys(build_key(session.thread_id, DISMISSAL.name))


def test_to_dismiss_twice_changes_nothing(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)
    world.send(session, "go")

    one = world.do(session, "dismiss", "head/north", by="anna")
    two = world.do(session, "dismiss", "head/north", by="berta")

    assert (one.is_new, two.is_new) == (True, False)
    assert two.dismissal == one.dismissal
    assert two.agents == ()


def test_an_agent_is_dismissed_by_its_id(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)

    done = world.do(session, "dismiss", session.registry().get("head/north").id)

    assert done.dismissal.path == "head/north"


def test_a_fork_from_before_begins_without_the_dismissal(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = team(
        {"head": per_conversation([[delegate("north", "go"), delegate("south", "go")], "over"])}
    )
    head = team(
        {"head": first(lambda _: [delegate("north", "go"), delegate("south", "go")], "over")}
    )
    session = Session(head, saver)
    world.send(session, "go")
    before = session.graph.get_state(session.config).config

    world.do(session, "dismiss", "head/north")
    world.send(session, "go again")
    assert told(session)[2:] == [f"[unable] {DISMISSED}", "south is done"]
    after = session.graph.get_state(session.config).config
    fork = {"messages": [HumanMessage("go elsewhere")]}
    world.invoke(session.graph, fork, before)

    assert told(session)[2:] == ["north is done", "south is done"]
    assert states(session)["head/north"] == "done"
    world.invoke(session.graph, fork, after)
    assert told(session)[4:] == [f"[unable] {DISMISSED}", "south is done"]
    assert states(session)["head/north"] == "dismissed"


def test_a_copy_has_the_dismissals_of_then(saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)
    session.send("go").result()
    saver.copy_thread(session.thread_id, "before")
    session.dismiss("head/north")
    saver.copy_thread(session.thread_id, "after")

    store = ThreadStore(saver)
    assert store.registry("before").get("head/north").state is AgentState.DONE
    assert store.registry("after").get("head/north").state is AgentState.DISMISSED


@pytest.mark.parametrize("damage", ["{", '{"by": 1}', "null"])
def test_a_damaged_dismissal_is_in_effect(
    world: World, saver: SqliteCheckpointer, damage: str
) -> None:
    session = Session(team({}), saver)
    world.do(session, "dismiss", "head/north", graceful=True)
    with saver.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_values SET value = ? WHERE key LIKE '%/dismissal/%'", (damage,)
        )

    with Session(team({}), saver) as again:
        world.send(again, "go")

        assert told(again) == [f"[unable] {DISMISSED}", "south is done"]
        assert states(again)["head/north/camp"] == "dismissed"


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_with_another_saver_a_dismissal_holds_on_the_saver_object(world: World) -> None:
    saver = InMemorySaver()
    head = team(
        {"head": first(lambda _: [delegate("north", "go"), delegate("south", "go")], "over")}
    )
    session = Session(head, saver)
    world.send(session, "go")
    before = session.graph.get_state(session.config).config

    world.do(session, "dismiss", "head/north")
    with Session(head, saver) as again:
        world.send(again, "go again")
        assert told(again)[2:] == [f"[unable] {DISMISSED}", "south is done"]
    world.invoke(session.graph, {"messages": [HumanMessage("go")]}, before)
    assert told(session)[2:] == ["north is done", "south is done"]


def test_nothing_can_be_dismissed_on_a_thread_that_there_is_not(saver: SqliteCheckpointer) -> None:
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.dismissal import dismiss_agent

    with pytest.raises(ThreadNotFound):
        run_plan(saver, dismiss_agent("nowhere", "head", {}, "anna", graceful=False))


def spawn(role: str, keep: bool = True, **more: Any) -> Call:
    return Call("spawn_subordinate", {"role": role, "message": "go", "keep": keep, **more})


def growing(script: dict[str, Any], **rules: Any) -> Agent:
    """Return a head that may make agents, beside a declared clerk."""
    given = {"scout": ["seen"] * 9, "clerk": ["noted"] * 9, **script}
    return Agent(
        "head",
        model=ScriptedModel(given),
        subordinates=[Agent("clerk")],
        permissions=Permissions(spawn=Spawn(**rules)),
    )


def find_name(messages: Sequence[BaseMessage]) -> str:
    """Return the name of the latest agent that was made, as its superior is told it."""
    said = [MADE.search(str(each.text)) for each in reversed(messages)]
    return next(found.group(1) for found in said if found)


MADE = re.compile(r"(scout-[0-9a-f]{8}) is there")


def dismiss(messages: Sequence[BaseMessage]) -> Call:
    return Call("dismiss_subordinate", {"name": find_name(messages)})


def test_superior_dismisses_spawned_agent_and_may_spawn_another(
    world: World, saver: SqliteCheckpointer
) -> None:
    steps: list[Any] = [
        spawn("scout"),
        dismiss,
        lambda messages: Call(
            "call_subordinate", {"subordinate": find_name(messages), "message": "again"}
        ),
        spawn("scout"),
        "over",
    ]
    head = growing({"head": lambda messages: play(steps, messages)}, at_once=1, total=2)
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    _, dismissed, again, _ = told(session)
    said = session.thread_store.get(session.thread_id).messages
    results = [read_whole(message) for message in said if message.type == "tool"]
    made, other = results[0], results[3]
    [name] = MADE.findall(made)
    assert dismissed == f"{name} is dismissed, with all below it"
    assert again == f"Error: '{name}' was dismissed, for good; spawn another"
    assert MADE.search(other)
    record = session.registry().get(f"head/{name}")
    assert record.state is AgentState.DISMISSED


def play(steps: Sequence[Any], messages: Sequence[BaseMessage]) -> Any:
    """Return the step after as many replies as there were since the task."""
    [*_, task] = [place for place, each in enumerate(messages) if is_said(each)]
    step = steps[sum(each.type == "ai" for each in messages[task:])]
    return step(messages) if callable(step) else step


def test_agent_dismisses_neither_itself_nor_strangers_nor_working_agents(
    world: World, saver: SqliteCheckpointer
) -> None:
    wrong = [Call("dismiss_subordinate", {"name": name}) for name in ("head", "nobody", "clerk")]
    steps: list[Any] = [
        [*wrong, Call("dismiss_subordinate", {"nam": "clerk"}), delegate("clerk", "go")],
        [Call("dismiss_subordinate", {"name": "clerk"})],
        [Call("dismiss_subordinate", {"name": "clerk"})],
        "over",
    ]
    head = growing({"head": lambda messages: play(steps, messages)})
    session = Session(head, saver)

    world.send(session, "go")

    own, stranger, busy, wordless, noted, dismissed, again = told(session)
    assert own == "Error: you cannot dismiss yourself; end your task with an answer instead"
    assert stranger.startswith("Error: no subordinate is called 'nobody'")
    assert busy == "Error: this message gives 'clerk' a task; dismiss it when it has answered"
    assert wordless.startswith("Error: name: ")
    assert (noted, dismissed) == ("noted", "clerk is dismissed, with all below it")
    assert again == "Error: 'clerk' was dismissed already"
    [*_, last] = [call for call in head.model.calls if call.agent == "head"]  # type: ignore[union-attr]
    texts = [str(each.text) for each in last.messages if "is dismissed, with" in str(each.text)]
    assert len(texts) == 1 and re.match(r"~\d{12} clerk is dismissed", texts[0])


def test_an_agent_that_may_not_spawn_has_no_such_tool(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [Call("dismiss_subordinate", {"name": "north"})]
    session = Session(team({"head": first(lambda _: calls, "over")}), saver)

    world.send(session, "go")

    assert told(session)[0].startswith("Error: there is no such tool")


BRANCHES = ("east", "west", "south")


def expedition(dig: Any) -> Agent:
    """Return a head whose north has three branches at once, each of which digs again and again."""
    digging = per_conversation([Call("dig"), Call("dig"), Call("dig"), Call("dig"), "dug out"])
    model = ScriptedModel(
        {
            "head": [delegate("north", "dig"), "over"],
            "north": [[delegate(name, "dig") for name in BRANCHES], "north is done"],
            **dict.fromkeys(BRANCHES, digging),
        }
    )
    north = Agent("north", subordinates=[Agent(name, tools=[dig]) for name in BRANCHES])
    return Agent("head", model=model, subordinates=[north])


def watch_journal(saver: SqliteCheckpointer) -> list[str]:
    """Return a list to which a word is added for each call begun, and for a dismissal."""
    seen: list[str] = []

    def note(statement: str) -> None:
        if statement.startswith("INSERT INTO ledger_values"):
            if '"state":"started"' in statement:
                seen.append("call")
            elif "/dismissal/" in statement:
                seen.append("dismissal")

    saver.conn.set_trace_callback(note)
    return seen


def read_findings(session: Session) -> list[str]:
    return [
        str(each.text)
        for name in BRANCHES
        for found in session.trace().walk()
        if found.agent == name
        for each in session.thread_store.get(found.thread_id).messages
        if each.type == "tool"
    ]


def test_in_three_branches_at_once_no_call_begins_after_the_commit(
    saver: SqliteCheckpointer,
) -> None:
    seen = watch_journal(saver)
    dug = count(1)
    together = threading.Barrier(3, timeout=60)

    @tool
    def dig() -> str:
        """Dig."""
        number = next(dug)
        if number == 5:
            session.dismiss("head/north")
        elif number < 4:
            together.wait()
        return f"found {number}"

    session = Session(expedition(dig), saver)

    assert session.send("go").result().text == "over"

    place = seen.index("dismissal")
    assert seen[:place].count("call") >= 5
    assert seen[place:] == ["dismissal"]
    findings = read_findings(session)
    # What was under way has come to its end, and is kept.
    assert [each for each in findings if each.startswith("found")]
    assert {"found 1", "found 2", "found 3", "found 5"} <= {*findings}
    assert told(session) == [f"[unable] {DISMISSED}"]


async def test_in_an_event_loop_three_branches_are_cut_short_at_once(
    saver: SqliteCheckpointer,
) -> None:
    seen = watch_journal(saver)
    dug, all_hang = count(1), asyncio.Event()
    cancelled: list[int] = []

    @tool
    async def dig() -> str:
        """Dig."""
        number = next(dug)
        if number <= 3:
            return f"found {number}"
        if number == 6:
            all_hang.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return "never said"

    session = Session(expedition(dig), saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await all_hang.wait()

    done = await session.adismiss("head/north")

    assert (await run).text == "over"
    assert sorted(cancelled) == [4, 5, 6]
    assert seen[seen.index("dismissal") :] == ["dismissal"]
    assert {str(each) for each in done.outcome_unknown} == {
        f"dig of head/north/{name}" for name in BRANCHES
    }
    findings = read_findings(session)
    assert {"found 1", "found 2", "found 3"} <= {*findings}
    assert findings.count("cut short, and what came of it is not known") == 3


def test_gracefully_dismissed_agent_finishes_and_delegates_no_more(
    world: World, saver: SqliteCheckpointer
) -> None:
    def dismissing(_: Sequence[BaseMessage]) -> Any:
        session.dismiss("head/north", graceful=True)
        return [Call("look"), delegate("camp", "go")]

    north = Agent(
        "north", tools=[look], subordinates=[Agent("camp")], permissions=Permissions(spawn=Spawn())
    )
    steps: list[Any] = [dismissing, [spawn("scout")], "north is done"]
    twice: list[Any] = [delegate("north", "go"), delegate("north", "go on"), "over"]
    model = ScriptedModel(
        {
            "head": lambda messages: play(twice, messages),
            "north": lambda messages: play(steps, messages),
        }
    )
    session = Session(Agent("head", model=model, subordinates=[north]), saver)

    assert world.send(session, "go").text == "over"

    assert told(session, "north") == ["nothing"] + [f"[unable] {DISMISSED}"] * 2
    assert told(session) == ["north is done", f"[unable] {DISMISSED}"]
    assert states(session)["head/north"] == "dismissed"


def test_a_graceful_dismissal_lets_a_question_be_answered_and_an_immediate_one_ends_it(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    [question] = world.send(session, "go").questions

    gently = world.do(session, "dismiss", "head/north", graceful=True)
    assert gently.questions == ()
    assert [each.id for each in world.do(session, "inbox")] == [question.id]
    assert states(session)["head/north"] == "waiting"
    with raises_code("agent_dismissed"):
        world.do(session, "steer", "head/north/camp", "listen")
    again = world.do(session, "dismiss", "head/north", graceful=True)
    assert not again.is_new

    saver.copy_thread(session.thread_id, "copy")
    assert world.answer(session, {question.id: "left"}).text == "over"
    assert told(session)[0] == "north is done"
    assert states(session)["head/north/camp"] == "dismissed"

    now = world.do(session, "dismiss", "head/north")
    assert (now.is_new, now.dismissal.graceful) == (True, False)
    assert not world.do(session, "dismiss", "head/north", graceful=True).is_new


def test_request_to_dismissed_agent_needs_no_approval(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [delegate("north", "go"), "over"], "north": ["never"]})
    head = Agent(
        "head",
        model=model,
        subordinates=[Agent("north")],
        permissions=Permissions(approvals={"north": "ask"}),
    )
    session = Session(head, saver)
    [question] = world.send(session, "go").questions

    done = world.do(session, "dismiss", "head/north", graceful=True)
    assert done.questions == (question.id,)
    with raises_code("agent_dismissed"):
        world.answer(session, {question.id: "approve"})
    result = world.resume(session)

    assert (result.text, result.questions) == ("over", ())
    assert told(session) == [f"[unable] {DISMISSED}"]


def test_a_crew_talks_at_once_and_what_it_leaves_goes_to_the_next_superior(
    world: World, saver: SqliteCheckpointer, tmp_path: Path
) -> None:
    """A chief makes two scouts, who write to each other and share notes; then it is dismissed."""
    both = threading.Barrier(2, timeout=60)

    def scout(messages: Sequence[BaseMessage]) -> Any:
        task = str(next(each.text for each in messages if each.text in ("food", "rooms")))
        step = sum(each.type == "ai" for each in messages)
        told = " ".join(str(each.text) for each in messages)
        [beside, *_] = BESIDE.findall(told)
        if step == 0 and world.__class__.__name__ == "Sync":
            both.wait()
        steps: list[Any] = [
            [
                Call("send_message", {"to": beside, "message": f"I look for {task}"}),
                Call("note_write", {"name": task, "text": f"{task} found"}),
                Call("write_file", {"path": f"{task}.md", "text": f"{task}\n"}),
            ],
            Call("note_read", {"name": "rooms" if task == "food" else "food"}),
            f"{task} noted",
        ]
        return steps[min(step, 2)]

    made = [
        Call("spawn_subordinate", {"role": "scout", "message": each, "keep": True})
        for each in ("food", "rooms")
    ]
    model = ScriptedModel(
        {
            "head": lambda messages: play([delegate("chief", "go"), "over"], messages),
            "chief": lambda messages: (
                "crew is back" if any(each.type == "tool" for each in messages) else made
            ),
            "scout": scout,
        }
    )
    crew = [*note_tools(), *file_tools()]
    names = tuple(each.name for each in crew)
    chief = Agent("chief", tools=crew, permissions=Permissions(spawn=Spawn(tools=names)))
    head = Agent("head", model=model, subordinates=[chief])
    session = Session(head, saver, workspace=tmp_path)
    assert world.send(session, "go").text == "over"
    scouts = [each for each in session.registry().agents if each.level == 2]
    assert len(scouts) == 2
    for each in scouts:
        said = session.thread_store.get(each.thread_ids[0]).messages
        answers = [str(one.text) for one in said if one.type == "tool"]
        assert answers.count("sent") == 1, answers
        assert any("found" in one for one in answers), answers

    done = world.do(session, "dismiss", "head/chief")

    assert {*done.agents} == {"head/chief", *(each.path for each in scouts)}
    assert (done.heir, {*done.changes}) == ("head", {each.path for each in scouts})
    left = world.do(session, "changes", "head")
    assert sorted((each.path, each.heir) for each in left) == [
        ("food.md", "head"),
        ("rooms.md", "head"),
    ]
    for each in scouts:
        assert not world.do(session, "merge", each.path).left
    assert {each.name for each in tmp_path.iterdir()} >= {"food.md", "rooms.md"}


BESIDE = re.compile(r"agents beside you\W+(scout-[0-9a-f]{8})")


def test_a_dismissal_outlives_the_checkpoints_of_its_time(saver: SqliteCheckpointer) -> None:
    head = team(
        {"head": first(lambda _: [delegate("north", "go"), delegate("south", "go")], "over")}
    )
    session = Session(head, saver)
    for turn in range(3):
        if turn == 1:
            session.dismiss("head/north")
        session.send(f"go {turn}").result()

    saver.prune([session.thread_id], strategy="keep_latest")

    assert states(session)["head/north"] == "dismissed"
    session.send("go again").result()
    assert told(session)[-2:] == [f"[unable] {DISMISSED}", "south is done"]
    assert saver.check().is_sound


def test_a_damaged_dismissal_is_in_effect_when_its_checkpoint_is_gone(
    saver: SqliteCheckpointer,
) -> None:
    head = team(
        {"head": first(lambda _: [delegate("north", "go"), delegate("south", "go")], "over")}
    )
    session = Session(head, saver)
    session.send("go").result()
    session.dismiss("head/north")
    session.send("go on").result()
    with saver.cursor() as cursor:
        cursor.execute("UPDATE ledger_values SET value = '{' WHERE key LIKE '%/dismissal/%'")

    saver.prune([session.thread_id], strategy="keep_latest")

    assert states(session)["head/north"] == "dismissed"
    assert [each.where for each in saver.check().faults]


async def test_the_root_too_is_cut_short_in_what_it_does_itself(saver: SqliteCheckpointer) -> None:
    began = asyncio.Event()

    async def hang(_: Sequence[BaseMessage]) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never said"

    session = Session(team({"head": hang}), saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await began.wait()

    await session.adismiss("head")
    result = await asyncio.wait_for(run, 60)

    assert (result.status, result.text) == (
        "dismissed",
        "Not finished (dismissed: head was dismissed).",
    )


async def test_a_call_of_the_root_is_cut_short_and_its_outcome_unknown(
    saver: SqliteCheckpointer,
) -> None:
    began = asyncio.Event()

    @tool
    async def dig() -> str:
        """Dig."""
        began.set()
        await asyncio.Event().wait()
        return "never said"

    head = Agent("head", model=ScriptedModel([Call("dig"), "never said"]), tools=[dig])
    session = Session(head, saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await began.wait()

    done = await session.adismiss("head")
    result = await asyncio.wait_for(run, 60)

    assert [str(each) for each in done.outcome_unknown] == ["dig of head"]
    assert result.status == "dismissed"
    assert told(session) == [
        "cut short, and what came of it is not known: dismissed: head was dismissed"
    ]
