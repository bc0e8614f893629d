"""`TeamServer`: an MCP server whose tools are teams, and the answers to their questions.

Each call is a turn of a thread in the database. Its work is reported as progress; its questions are
asked of the client's human (elicitation), or returned as text and answered by a second tool.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from langgraph.checkpoint.base import CheckpointTuple
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession

from echelons.agent import Agent
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, arun_plan
from echelons.checkpoints.threads.answer_outbox import accept_answer
from echelons.checkpoints.threads.pending_work import Question
from echelons.errors import EchelonsError, ThreadNotFound, duplicate_name, invalid_thread
from echelons.features.workspace.files import Workspace
from echelons.guards.gate import NotedCall
from echelons.identity.lineage import Identity, derive_root_thread_id
from echelons.mcp.call_meta import read_outer_limits, report_calls
from echelons.mcp.elicitation import ANSWER_FIELD, build_question_form, describe_question
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.runtime.session import Session
from echelons.runtime.session_run import AsyncRun, Result
from echelons.text.error_lines import describe_error, join_printable, redact_secrets
from echelons.text.input_limits import is_label

LOG = logging.getLogger(__name__)

ANSWER_TOOL = "answer"
"""Name of the tool that answers a question of a team."""
LONGEST_PROGRESS = 200
"""Characters of a progress notification."""
TEAM_KEY = "team"
"""Key of a thread's metadata with the team that it belongs to, as the command line stores it."""

Report = Callable[[RunEvent], Awaitable[None]]


@dataclass(frozen=True)
class ServedTeam:
    """A team as a tool.

    Attributes:
        agent: Its root.
        name: Name of the tool; by default that of the root.
        metadata: The metadata of its threads, such as how the command line builds the team.
        spawnable: The agents that its agents may make copies of, as of `Session`.
        workspace: The folder whose files they read and propose to change, as of `Session`.

    Raises:
        WorkspaceError: The workspace is no folder that can be written, or a link.
    """

    agent: Agent
    name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    spawnable: Mapping[str, Agent] = field(default_factory=dict)
    workspace: Path | None = None

    def __post_init__(self) -> None:
        if self.workspace is not None:
            Workspace(self.workspace)  # else the first task would find out

    @property
    def tool(self) -> str:
        """The name of its tool.

        Examples:
            >>> ServedTeam(Agent("head"), "my team").tool
            'my_team'
        """
        return re.sub(r"[^A-Za-z0-9_-]+", "_", self.name or self.agent.name)[:64]

    def owns(self, root: CheckpointTuple) -> bool:
        """Return whether a stored root thread is one of this team."""
        identity = Identity.from_metadata(root.metadata)
        stored: Any = root.metadata
        is_same_team = stored.get(TEAM_KEY) == self.metadata.get(TEAM_KEY)
        return is_same_team and identity is not None and identity.path == (self.agent.name,)


class TeamServer:
    """An MCP server that offers teams as tools.

    Args:
        teams: The teams.
        saver: The database of their threads; it stays open.

    Raises:
        ConfigurationError: Two of the tools would have the same name.
    """

    def __init__(self, teams: Sequence[ServedTeam], saver: SqliteCheckpointer) -> None:
        self._saver = saver
        self._teams: dict[str, ServedTeam] = {}
        # By thread: the cancelled runs that have not ended yet.
        self._ending: dict[str, asyncio.Task[Result]] = {}
        for team in teams:
            if team.tool in self._teams or team.tool == ANSWER_TOOL:
                raise duplicate_name(team.tool, ("tools of the server",))
            self._teams[team.tool] = team
        instructions = (
            "Each tool but `answer` gives a task to a team of agents. The second text of a result "
            "names the thread: give it with the next task to go on with the conversation."
        )
        self.sdk_server: Server[Any, Any] = Server(
            "echelons", version=version("echelons"), instructions=instructions
        )
        self.sdk_server.list_tools()(self._list_tools)  # type: ignore[no-untyped-call]
        self.sdk_server.call_tool()(self._call_tool)

    async def _list_tools(self) -> list[types.Tool]:
        teams = [_build_team_tool(name, team.agent) for name, team in self._teams.items()]
        return [*teams, _build_answer_tool()]

    async def _call_tool(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            if name == ANSWER_TOOL:
                return await self._answer(**arguments)
            if name in self._teams:
                return await self._send(self._teams[name], **arguments)
        except EchelonsError as error:
            return _build_error(redact_secrets(str(error)))
        except Exception as error:  # noqa: BLE001  a team's own code raises anything
            return _build_error(f"the run failed: {describe_error(error)}")
        return _build_error(f"there is no tool {name[:100]!r}")

    async def _send(
        self, team: ServedTeam, task: str, thread: str | None = None
    ) -> types.CallToolResult:
        if thread is None:
            now = datetime.now()
            thread = f"{team.tool}-{now:%Y%m%d-%H%M%S}-{uuid4().hex[:8]}"
        elif (root := await self._read_root(thread)) and not team.owns(root):
            raise ThreadNotFound(thread)  # of this team: what else there is, is none of its affair
        return await self._run_turn(team, thread, lambda session: session.asend(task))

    async def _answer(self, thread: str, question: str, value: Any) -> types.CallToolResult:
        root = await self._read_root(thread)
        team = next((team for team in self._teams.values() if root and team.owns(root)), None)
        if team is None:
            raise ThreadNotFound(thread)
        by = self._get_client_name()
        return await self._run_turn(
            team, thread, lambda session: session.aanswer(question, value, by=by)
        )

    async def _read_root(self, thread: str) -> CheckpointTuple | None:
        if not is_label(thread):
            raise invalid_thread(thread)
        return await arun_plan(self._saver, _read_checkpoint(thread))

    async def _run_turn(
        self,
        team: ServedTeam,
        thread: str,
        start: Callable[[Session], Awaitable[AsyncRun]],
    ) -> types.CallToolResult:
        """Run a turn until it ends, or has questions that the client's human does not answer."""
        if ending := self._ending.get(thread):
            # The client was notified of the cancellation before the run had ended.
            await asyncio.wait({ending})
        limits, calls = read_outer_limits(self.sdk_server.request_context.meta), list[NotedCall]()
        if limits and limits.exhausted:
            return _build_error(f"limit: the client has no {limits.exhausted} left")
        with limits.hold(calls) if limits else nullcontext():
            result, thread_id = await self._run_within(team, thread, start)
        return report_calls(result, team.agent.name, thread_id, calls) if limits else result

    async def _run_within(
        self,
        team: ServedTeam,
        thread: str,
        start: Callable[[Session], Awaitable[AsyncRun]],
    ) -> tuple[types.CallToolResult, str]:
        """Return the result of a turn, and the id of its thread."""
        async with Session(
            team.agent,
            self._saver,
            thread=thread,
            metadata=team.metadata,
            workspace=team.workspace,
            spawnable=team.spawnable,
        ) as session:
            report = self._build_report()
            by = self._get_client_name()
            result = await self._drive(session, start(session), report)
            while result.status == "asking":
                answers = await self._elicit(result.questions)
                if not answers:
                    break
                result = await self._drive(session, session.aanswer(answers, by=by), report)
        questions = [describe_question(question) for question in result.questions]
        text = str(result)
        if questions and not result.finished:
            how = f"Ask the user, then call `{ANSWER_TOOL}` with the thread, the id and the answer:"
            text = "\n".join([how, *(json.dumps(question, default=repr) for question in questions)])
        described: dict[str, Any] = {
            "thread": thread,
            "status": result.status,
            "text": result.text,
            "reason": result.reason,
            "questions": questions,
        }
        content: list[types.ContentBlock] = [
            types.TextContent(type="text", text=text),
            types.TextContent(type="text", text=f"thread: {thread}"),
        ]
        structured = json.loads(json.dumps(described, default=repr))
        result_of_call = types.CallToolResult(content=content, structuredContent=structured)
        return result_of_call, session.thread_id

    async def _drive(
        self, session: Session, starting: Awaitable[AsyncRun], report: Report
    ) -> Result:
        """Drive a run to its end; if the request is cancelled, the turn is stopped."""
        # A task of its own: a cancelled run would leave its turn unfinished, a stopped one ends it.
        driving = asyncio.create_task(_drive_run(starting, report))
        try:
            return await asyncio.shield(driving)
        except asyncio.CancelledError:
            self._ending[session.thread] = driving
            with anyio.CancelScope(shield=True):
                try:
                    await session.astop(by=self._get_client_name())
                except EchelonsError:  # it has not begun, or has ended
                    driving.cancel()
                await asyncio.wait({driving})
            del self._ending[session.thread]
            if not driving.cancelled() and (failure := driving.exception()):
                LOG.warning("a cancelled run has failed: %s", describe_error(failure))
            raise

    async def _elicit(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the answers of the client's human, by the ids of their questions."""
        client = self.sdk_server.request_context.session
        wanted = types.ClientCapabilities(elicitation=types.ElicitationCapability())
        if not client.check_client_capability(wanted):
            return {}
        answers: dict[str, Any] = {}
        for question in questions:
            if (form := build_question_form(question)) is None:
                continue
            with suppress(EchelonsError):  # an answer that does not fit leaves its question open
                content = await self._ask_client(client, question, form)
                if content is None:
                    break
                accept_answer(question, content[ANSWER_FIELD])
                answers[question.id] = content[ANSWER_FIELD]
        return answers

    async def _ask_client(
        self, client: ServerSession, question: Question, form: dict[str, Any]
    ) -> Mapping[str, Any] | None:
        described = describe_question(question)
        message = f"{described['from']} asks: {described['question']}"
        request_id = self.sdk_server.request_context.request_id
        try:
            answer = await client.elicit_form(message, form, related_request_id=request_id)
        except Exception as error:  # noqa: BLE001  of the client; the question is returned as text
            LOG.warning("the client could not ask its user: %s", describe_error(error))
            return None
        content = answer.content or {}
        return content if answer.action == "accept" and ANSWER_FIELD in content else None

    def _build_report(self) -> Report:
        """Return the listener that reports each event to the client, if it wants reports."""
        context = self.sdk_server.request_context
        token = context.meta.progressToken if context.meta else None
        count = 0

        async def report(event: RunEvent) -> None:
            nonlocal count
            # A reply without a text has calls, whose events follow.
            is_silent = event.kind is RunEventKind.MESSAGE and not event.content
            if token is None or is_silent or event.kind is RunEventKind.TOKEN:
                return
            count += 1
            text = f"{event.path} {event.kind}: {join_printable(event.content[:LONGEST_PROGRESS])}"
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await context.session.send_progress_notification(
                    token, count, message=text, related_request_id=str(context.request_id)
                )

        return report

    def _get_client_name(self) -> str:
        """Return the client's name for itself, which is not checked."""
        parameters = self.sdk_server.request_context.session.client_params
        name = join_printable(parameters.clientInfo.name[:100]) if parameters else ""
        return f"MCP client {name}".strip()


async def _drive_run(starting: Awaitable[AsyncRun], report: Report) -> Result:
    async with await starting as run:
        async for event in run:
            await report(event)
        return await run.result()


def _read_checkpoint(thread: str) -> ReadPlan[CheckpointTuple | None]:
    # As a session does, which also takes the id of a stored thread.
    saved: CheckpointTuple | None = yield OneCheckpoint(thread)
    if saved is None:
        saved = yield OneCheckpoint(derive_root_thread_id(thread))
    return saved


def _build_team_tool(name: str, agent: Agent) -> types.Tool:
    does = agent.description or f"The team {name}"
    return types.Tool(
        name=name,
        description=f"{does.rstrip('.')}. Gives a task to this team of agents.",
        inputSchema={
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "What to do, in words."},
                "thread": {
                    "type": "string",
                    "description": "The thread of an earlier task, to go on with; a new one if "
                    "left out.",
                },
            },
            "required": ["task"],
            "additionalProperties": False,
        },
    )


def _build_answer_tool() -> types.Tool:
    return types.Tool(
        name=ANSWER_TOOL,
        description="Answers a question that a team has asked its user, and goes on. Ask the user, "
        "do not answer yourself.",
        inputSchema={
            "type": "object",
            "properties": {
                "thread": {"type": "string", "description": "The thread that asks."},
                "question": {"type": "string", "description": "The id of the question."},
                "value": {"description": "The answer: a text, or what the question's schema says."},
            },
            "required": ["thread", "question", "value"],
            "additionalProperties": False,
        },
    )


def _build_error(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=why)], isError=True)
