"""`stop`, `pause`, `resume` and `attach`: commands for a turn that runs in another process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    AgentArgument,
    ByOption,
    DatabaseOptions,
    ExitCode,
    OutputOptions,
    RunOutputOptions,
    TeamOption,
    ThreadArgument,
    ThreadOptions,
    command,
)
from echelons.delegation.mail import USER, load_mail
from echelons.errors import ThreadNotFound, UnknownPath
from echelons.identity.lineage import choose_user_name, derive_root_thread_id
from echelons.text.content_blocks import read_block_texts
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.checkpoints.storage.event_rows import StoredEvent
    from echelons.checkpoints.threads.control import ControlOrder
    from echelons.cli.board import AgentBoard
    from echelons.runtime.run_events import RunEvent


YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking first.")]

TAKEOVER_RISK = (
    "It can store nothing more, but what its tools do in the world goes on, and a tool call that "
    "it is in the middle of may still happen after you are asked about it. To end the process "
    "is safer, and frees the thread, too."
)


@command("stop", "stop head/experiences --thread trip", "stop head/flights --json")
def stop(
    path: AgentArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Stop an agent and all below it, or the whole turn, in any process."""
    _give_order("stopped", path, team, by, place, how)


@command("pause", "pause head/experiences --thread trip")
def pause(
    path: AgentArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Pause an agent and all below it, or the whole tree, before the next model call."""
    _give_order("paused", path, team, by, place, how)


def _give_order(
    order: ControlOrder,
    path: str | None,
    team: str | None,
    by: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Give an order to an agent that has begun, or else to one that the team declares."""
    from echelons.checkpoints.threads.agent_states import resolve_agent
    from echelons.checkpoints.threads.control import give_order
    from echelons.cli.team_loader import list_agent_paths

    with database.open_unfinished(place, database.OPEN_STATES) as thread:
        name = choose_user_name(by)
        if path is not None:
            path = thread.run(resolve_agent(thread.id, path))
        try:
            ordered = thread.run(give_order(order, thread.id, path, by=name))
        except UnknownPath:
            paths = list_agent_paths(thread, team, output.choose_tracker(silent=how.json))
            ordered = thread.run(give_order(order, thread.id, path, paths, name))
        running = thread.is_running()
    again = output.build_command_line("resume", "--thread", thread.label, db=place.db)
    output.print_outcome(
        {order: ordered, "thread": thread.label, "running": running},
        [f"{order} {ordered} in thread {thread.label}"],
        *([] if running else [f"it is not running now; go on with: {again}"]),
        as_json=how.json,
    )


@command("takeover trip", "takeover trip --yes --json")
def takeover(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> None:
    """Take a thread from a process that hangs, so that it can be resumed.

    That process can store nothing more, but what its tools do in the world
    goes on, and a tool call that it is in the middle of may still happen
    after you are asked about it. To end the process is safer, and frees the
    thread, too.
    """
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.control import take_over_thread

    with database.open_database(place.db) as saver:
        try:
            root = database.find_root(saver, thread)
            root_id, label = root.id, database.root_label(root)
        except ThreadNotFound:
            # A process may hang before the first checkpoint of its first turn.
            root_id, label = derive_root_thread_id(thread), thread
        holder = saver.ledger.get_holder(build_key(root_id))
        if holder and not yes:
            where = f" on {holder.host}" if holder.host else ""
            held = f"Process {holder.pid}{where} has held thread {label} since {holder.since}."
            output.confirm(f"{held} {TAKEOVER_RISK} Take it over?")
        taken = run_plan(saver, take_over_thread(root_id, label, holder))
    again = output.build_command_line("resume", "--thread", label, db=place.db)
    output.print_outcome(
        {"taken_over": label, "thread_id": root_id, **taken._asdict()},
        [f"took thread {label} over from process {taken.pid}"],
        f"go on with: {again}",
        as_json=how.json,
    )


POLL_INTERVAL = 0.1
"""Seconds between two looks at the database."""


@command("attach", "attach --thread trip --json")
def attach(*, place: ThreadOptions, how: RunOutputOptions) -> ExitCode:
    """Follow a turn that another process runs, from its task to its end, and print the answer.

    Ctrl-C ends the following; the turn goes on. If no process runs the thread, what is stored of
    its last turn is shown. Without [b]--thread[/b], the only thread whose turn has not ended.
    """
    from echelons.cli.board import AgentBoard, choose_view
    from echelons.cli.turns import print_turn_result
    from echelons.delegation.request import Usage
    from echelons.runtime.run_end import read_run_end
    from echelons.runtime.session_requests import SessionThread
    from echelons.runtime.session_run import Result

    with database.open_unfinished(place, database.OPEN_STATES) as thread:
        board, usage = AgentBoard(time.monotonic), Usage()
        view = choose_view(board, how)
        try:
            with view:
                for stored in _follow_events(thread):
                    for event in build_run_events(stored):
                        usage += event.usage
                        board.apply_event(event)
                        view.show_event(event)
                    _mark_answered(thread, board)
        except KeyboardInterrupt:
            output.print_remark(f"thread {thread.label} goes on without you")
            return ExitCode.INTERRUPTED
        result = Result.from_run_end(thread.run(read_run_end(thread.id, 1.0)), usage)
    board.apply_result(result)
    return print_turn_result(result, board, SessionThread(thread.label, thread.id), place.db, how)


def _follow_events(thread: database.OpenThread) -> Iterator[StoredEvent]:
    """Yield the events of a thread since its last task, until no process runs it any more."""
    last, version = None, None
    while True:
        running = thread.is_running()
        latest = thread.saver.foreign_writes()
        if latest != version or not running:
            for stored in thread.saver.read_events(thread.id, last):
                last = stored.number
                yield stored
            version = latest
        if not running:
            return
        time.sleep(POLL_INTERVAL)


def _mark_answered(thread: database.OpenThread, board: AgentBoard) -> None:
    """Let the agents go on whose questions are answered."""
    from echelons.checkpoints.threads.answer_outbox import read_answer_versions

    if questions := [*board.questions]:
        versions = thread.run(read_answer_versions(thread.id, questions))
        for question in questions:
            if versions.get(question) is not None:
                board.mark_answered(question)


def build_run_events(stored: StoredEvent) -> Iterator[RunEvent]:
    """Yield the events of a run that a stored event of a thread stands for."""
    from echelons.checkpoints.thread_events import EventKind
    from echelons.runtime.run_events import RunEvent, RunEventKind, build_action_event

    path, thread, data = stored.agent_path, stored.agent_thread_id, stored.event.data
    match stored.event.kind:
        case "message":
            yield from _build_message_events(stored)
        case "question":
            facts = {"id": stored.event.key, **data}
            text = str(data["value"])
            yield RunEvent(path, RunEventKind.QUESTION, text, thread_id=thread, data=facts)
        case "answer" | "approval" | "order" as kind:
            facts = {**data, "at": stored.at}
            yield build_action_event(EventKind(kind), path, thread, facts)
        case "alert":
            yield RunEvent(path, RunEventKind.ALERT, data["reason"], data=data)
        case "report":
            yield RunEvent(path, RunEventKind.REPORT, data["text"])
        case kind:
            call = {"id": data.get("call_id", ""), "arguments": data["arguments"]}
            if "request" in data:
                call["request"] = data["request"]
                call["thread_id"] = data.get("sub_agent_thread_id", "")
            yield RunEvent(path, RunEventKind(kind), data["intent"], thread_id=thread, data=call)


def _build_message_events(stored: StoredEvent) -> Iterator[RunEvent]:
    from echelons.delegation.request import Usage
    from echelons.runtime.run_events import RunEvent, RunEventKind, build_mail_event

    path, thread, data = stored.agent_path, stored.agent_thread_id, stored.event.data
    text, artifact = read_block_texts(data["content"]), data.get("artifact")
    match data["role"]:
        case "human" if "mail" in data:
            yield build_mail_event(path, thread, load_mail(text, data["mail"]))
        case "human":
            yield RunEvent(path, RunEventKind.TASK, text, thread_id=thread)
        case "ai":
            tokens = data.get("usage") or {}
            usage = Usage(
                input_tokens=tokens.get("input_tokens", 0),
                output_tokens=tokens.get("output_tokens", 0),
                # What no model wrote has none.
                model_calls=int("usage" in data),
                unknown_calls=int("usage" in data and not tokens),
            )
            # Older databases do not have the model.
            facts: dict[str, Any] = {"model": str(data.get("model", ""))}
            if data.get("monitor") is True:
                facts["monitor"] = True
            if "cut" in data:
                facts["cut"] = str(data["cut"])
            yield RunEvent(
                path, RunEventKind.MESSAGE, text, usage=usage, thread_id=thread, data=facts
            )
        case "tool" if isinstance(artifact, dict) and artifact.get("model") == "DelegationResponse":
            if "warning" in data:
                about = {"id": data.get("tool_call_id", "")}
                warning = str(data["warning"])
                yield RunEvent(path, RunEventKind.WARNING, warning, thread_id=thread, data=about)
            yield from _build_response_events(path, artifact)
        case "tool":
            facts = {"id": data.get("tool_call_id", ""), "status": data.get("status", "")}
            yield RunEvent(path, RunEventKind.TOOL_RESULT, text, thread_id=thread, data=facts)
            if isinstance(artifact, dict) and artifact.get("to") == USER:
                mail = {"kind": "message", "from": path, "to": USER}
                text = str(artifact.get("text", ""))
                yield RunEvent(path, RunEventKind.MAIL, text, thread_id=thread, data=mail)


def _build_response_events(superior: str, stored: dict[str, Any]) -> Iterator[RunEvent]:
    """Yield the responses of the subordinates that a call has asked."""
    from echelons.delegation.request import DelegationResponse
    from echelons.runtime.run_events import RunEvent, RunEventKind

    whole = DelegationResponse.load(stored)
    name = superior.rpartition(PATH_SEPARATOR)[2]
    # A response in the superior's own name joins those of several requests or attempts.
    joined = whole.subordinate_responses if whole.agent == name else ()
    for response in joined or (whole,):
        _, *below = response.path.parts or (name, response.agent)
        facts = {
            "agent": response.agent,
            "status": str(response.status),
            "reason": response.reason,
            "confidence": response.confidence,
            "final": True,
        }
        path = f"{superior}{PATH_SEPARATOR}{below[0] if below else response.agent}"
        thread = response.thread_id
        yield RunEvent(path, RunEventKind.RESPONSE, response.result, thread_id=thread, data=facts)
