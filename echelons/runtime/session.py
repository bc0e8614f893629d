"""`Session`: the durable way to run a tree on one thread of one database.

Sends tasks, answers questions, resumes after a crash, and shows what happened. Each method
has an async version with the prefix `a`; the two share all decisions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from langchain_core.callbacks import Callbacks
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from echelons.agent import Agent
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.default_path import record_run
from echelons.checkpoints.ledger import Lease, LeaseHolder
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, arun_plan, run_plan
from echelons.checkpoints.threads.agent_states import read_registry, resolve_agent
from echelons.checkpoints.threads.answer_outbox import read_open_questions
from echelons.checkpoints.threads.control import (
    NO_MODEL,
    ControlOrder,
    give_order,
    post_mail,
    take_over_thread,
)
from echelons.checkpoints.threads.dismissal import DismissedSubtree, dismiss_agent
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.repair import HideableMessage, list_hideable, repair_thread
from echelons.checkpoints.threads.store import RootThread, ThreadStore
from echelons.checkpoints.threads.thread_usage import read_usage
from echelons.checkpoints.threads.trace import Trace
from echelons.delegation.mail import MailKind
from echelons.delegation.spawned_agents import check_spawnable
from echelons.errors import (
    ConfigurationError,
    EchelonsError,
    ForeignSaverWarning,
    InvalidSetting,
    SpawnRefused,
    ThreadBusy,
    ThreadNotFound,
    UnknownPath,
    invalid_database,
    invalid_option,
    invalid_thread,
    message_refused,
    no_workspace,
)
from echelons.features.registry import provide_features
from echelons.features.workspace.changes import ChangedFile, MergeResult
from echelons.features.workspace.feature import (
    add_changes,
    discard_changes,
    list_changes,
    merge_agent_changes,
)
from echelons.features.workspace.files import Workspace
from echelons.graphs.inherited import check_budgets
from echelons.graphs.tools import check_tool_names, probe_tree
from echelons.guards.budget import Budget, format_amount
from echelons.guards.prices import Prices, check_prices
from echelons.human import Human
from echelons.identity.lineage import choose_user_name, derive_root_thread_id
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.runtime.run_options import RunOptions
from echelons.runtime.session_requests import (
    MISSING,
    ResumeRequest,
    SendRequest,
    SessionRequest,
    SessionThread,
    Task,
    build_answer_request,
    build_send_request,
)
from echelons.runtime.session_run import (
    AsyncRun,
    Run,
    aend_left_run,
    aend_runs,
    end_left_run,
    end_runs,
)
from echelons.runtime.turn_engine import TurnEngine
from echelons.text.error_lines import Redactor, redact_secrets
from echelons.text.input_limits import is_label, read_text, shorten_repr
from echelons.tree.agent_path import AgentPath
from echelons.tree.agent_registry import AgentKind, AgentRegistry, AgentState, RegistryDrawing
from echelons.tree.members import walk_tree
from echelons.tree.name_themes import NameTheme, check_theme, choose_theme
from echelons.tree.permission_rules import check_profiles, get_permissions
from echelons.tree.usage_report import UsageReport

_WARNED_OF: WeakSet[BaseCheckpointSaver[Any]] = WeakSet()
"""Foreign savers of earlier sessions: a server that opens one for each request warns once."""


class Session:
    """A tree that runs on one thread.

    Args:
        agent: The tree's root.
        database: Path of a SQLite database, or any LangGraph saver. A path is opened here
            and closed with the session. Of another saver than `SqliteCheckpointer`, a
            `ForeignSaverWarning` says once what is not guaranteed.
        thread: Name of the thread. A UUID is taken as the thread's id itself, and so
            is the id of a thread that a compiled graph has already stored in the database.
        metadata: Texts and numbers stored with each of its checkpoints; `RootThread` returns
            them, so a program can store what it needs to resume in another process.
        store: A LangGraph store, which tools of every level read and write.
        context: The object that tools of every level read as `ToolRuntime.context`; any object.
        configurable: The values in `configurable` of their `RunnableConfig`, by key. Names that
            begin with `__`, numbers, and LangGraph's own such as `thread_id` are refused.
        callbacks: LangChain's callback handlers, or a callback manager, for every level.
        tags: LangChain's tags, for every level.
        stored_keys: Keys of `configurable`, with texts or numbers, that are stored with each
            checkpoint. Nothing else of these is stored. A run that continues a turn gets the stored
            keys of the turn again, unless `configurable` has them; give it the rest again. Names of
            secrets, such as `api_key`, are refused.
        redactor: Takes a text of an exception, and returns it without what must not be seen, see
            `Agent.compile`.
        workspace: A folder whose files agents with `file_tools` read, and to which they propose
            changes. Nothing of it is stored but their changes.
        theme: The names for people that agents get which are spawned, if the root has no theme of
            its own, see `Agent`; one that is drawn by the thread's id if left out.
        spawnable: Agents that others may be made after at run time, by the name of the profile, see
            `Permissions(spawn=...)`. None of them is stored: give them to each session again.
        prices: Costs of models: `Prices`, or the path of a file with them, see `Prices.from_file`.
            None are stored.

    Raises:
        ConfigurationError: The agent is no `Agent`; the database is neither.
        InvalidInput: The thread's name is empty, too long, not a text, or not printable; an entry
            of `metadata` cannot be stored; something of the arguments after it cannot be passed, or
            stored.
        ConfigurationError: The theme has no names, or such that cannot be used; the prices cannot
            be used.
        WorkspaceError: The workspace is no folder that can be written, or a link.
        StorageError: The database cannot be opened.
        CheckpointTampered: The thread of that name was damaged.
        ModelError: A named model is unknown, or lacks a key, its package or what else it needs.

    Examples:
        >>> from echelons import Agent, Session
        >>> with Session(Agent("head"), ":memory:", thread="trip") as session:
        ...     result = session.send("Hello").result()
        >>> result.finished
        True
    """

    def __init__(  # noqa: PLR0913
        self,
        agent: Agent,
        database: str | Path | BaseCheckpointSaver[Any],
        *,
        thread: str = "main",
        metadata: Mapping[str, str | int | float | bool] | None = None,
        store: BaseStore | None = None,
        context: Any = None,
        configurable: Mapping[str, Any] | None = None,
        callbacks: Callbacks = None,
        tags: Sequence[str] = (),
        stored_keys: Sequence[str] = (),
        redactor: Redactor = redact_secrets,
        workspace: str | Path | None = None,
        theme: NameTheme | str | Path | None = None,
        spawnable: Mapping[str, Agent] | None = None,
        prices: Prices | str | Path | None = None,
    ) -> None:
        # What an object says of its class may be anything.
        if not issubclass(type(agent), Agent):
            raise ConfigurationError(
                "{given:short} is no agent; pass an Agent. A shipped team is made by a function, "
                "such as echelons.teams.travel.team.team(); only `echelons run` loads one by its "
                "name",
                code="invalid_agent",
                given=agent,
            )
        if not is_label(thread):
            raise invalid_thread(thread)
        self.thread = thread = read_text(thread) or ""
        options = RunOptions.check(metadata, context, configurable, callbacks, tags, stored_keys)
        is_path = issubclass(type(database), (str, Path))
        if not is_path and not issubclass(type(database), BaseCheckpointSaver):
            raise invalid_database(database)
        options.check_saver(database)
        profiles = check_spawnable(spawnable)
        if profiles:
            check_profiles(agent, profiles)
        for profile in profiles.values():
            check_profiles(profile.member, profiles)
            check_tool_names(profile.member, probe_tree(profile.member))
        folder = None if workspace is None else Workspace(workspace)
        self._given_theme = check_theme(theme)
        self.prices = check_prices(prices)
        self.graph = agent.compile(database, store=store, redactor=redactor)
        if self.prices:
            check_budgets(agent, self.graph.models, prices=self.prices)
        saver = self.graph.checkpointer
        if not isinstance(saver, BaseCheckpointSaver):
            raise invalid_database(database)
        if not isinstance(saver, SqliteCheckpointer) and saver not in _WARNED_OF:
            warnings.warn(_describe_foreign_saver(saver), ForeignSaverWarning, stacklevel=2)
            _WARNED_OF.add(saver)
        self._saver = saver
        self._own_saver = None if saver is database else saver
        try:
            # A graph of the user's own may have used the name as LangGraph's id itself. Only ours
            # is asked: a saver for event loops may not be read here.
            is_id = isinstance(saver, SqliteCheckpointer) and OneCheckpoint(thread).get(saver)
        except EchelonsError:
            self._close_saver()
            raise
        self.thread_id = thread if is_id else derive_root_thread_id(thread)
        confidence = max(agent.capabilities.values(), default=1.0)
        root_thread = SessionThread(thread, self.thread_id, confidence, agent.name)
        self._workspace = folder
        self._engine = TurnEngine(
            self.graph,
            saver,
            root_thread,
            options,
            provide_features(saver, {"workspace": folder}),
            profiles,
            self._given_theme,
            self.prices,
        )
        self.thread_store = ThreadStore(saver)
        self._record_team()

    def _record_team(self) -> None:
        # Commands import no module that only a database names.
        team = self._engine.options.stored_metadata.get("team")
        if isinstance(team, str) and ":" in team and isinstance(self._saver, SqliteCheckpointer):
            record_run(team, Path(self._saver.path))

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the root thread."""
        return self._engine.config

    @property
    def theme(self) -> NameTheme:
        """The names for people that the agents get which are spawned on this thread."""
        return choose_theme(self.graph.agent.theme, self._given_theme, self.thread_id)

    def close(self) -> None:
        """End the runs of this session, each with its current step, then close the database.

        The database stays open if it was opened outside, as a saver. The session's event loop, in
        which synchronous runs run what is only async, ends too. In an event loop, use `aclose` or
        `async with`: this does not wait for async runs.
        """
        try:
            end_runs(self._engine)
        finally:
            self._engine.loop.close()
            self._close_saver()

    async def aclose(self) -> None:
        """Async version of `close`."""
        try:
            await aend_runs(self._engine)
        finally:
            await self._engine.loop.aclose()
            self._close_saver()

    def _close_saver(self) -> None:
        if isinstance(self._own_saver, SqliteCheckpointer):
            self._own_saver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def send(
        self,
        task: Task,
        *,
        turn_id: str | None = None,
        request_context: Mapping[str, Any] | None = None,
        to: str | None = None,
        budget: Budget | None = None,
    ) -> Run:
        """Send a task to the root, or to an agent below it.

        A task for an agent below is passed on to it without a model call, on the thread that it
        has with its superior. Its answer is a tool result of that superior, whose model then
        replies to its own superior, and so on: each model on the way is called, up to the root's,
        which ends the turn.

        Args:
            task: The task: a text, or LangChain's content blocks, such as a text and a picture.
                For a root with an input, an instance of its model, its fields, or a text that is
                one.
            turn_id: Your id of this turn. A turn that is submitted again is not run twice: its
                answer is returned if it is finished, and it is resumed if it was cut short.
            request_context: Facts for the task, by name, as JSON of at most 64 KiB: the context of
                the root's request, which its model reads before the task, and its tools with
                `get_request`. It is stored with the task. Subordinates get what their superior
                passes on; with `to`, all agents on the way get it.
            to: The agent that it is for, such as `"head/north"`, also one that was made at run time
                and kept: its path, its id, or its name for people. The root if left out.
            budget: The limit of all agents together in the turn, until it has ended, whichever
                process goes on with it. No more than the root's `Permissions(budget=)`.

        Raises:
            InvalidSetting: The budget is more than the root's permissions, or cannot be kept: a
                model of the tree reports no tokens, or has no price.
            UnknownPath: The tree has no agent at `to`.
            InvalidInput: The root has an input, and the task is none; it is empty, a model could
                not be sent its blocks, or it has blocks and is for an agent below the root; it has
                more than 1 MiB of text, or 4 MiB of pictures and files; `turn_id` has other
                characters than letters, digits and `._:-`.
            ThreadBusy: Another run holds the thread.
            InterventionPending: The thread waits for answers.
            UnfinishedTurn: Its last turn was cut short, and not stopped.
            ThreadError: The turn was another task, or had another context or another `to`.
            InvalidInput: `request_context` is no JSON object, or too large; a key in the session's
                `stored_keys` is neither given nor stored.
        """
        addressee = () if to is None else run_plan(self._saver, self._find_addressee(to))
        request = self._build_send_request(task, turn_id, request_context, addressee, budget)
        end_left_run(self._engine)
        return self._start_run(request)

    async def asend(
        self,
        task: Task,
        *,
        turn_id: str | None = None,
        request_context: Mapping[str, Any] | None = None,
        to: str | None = None,
        budget: Budget | None = None,
    ) -> AsyncRun:
        """Async version of `send`."""
        addressee = () if to is None else await arun_plan(self._saver, self._find_addressee(to))
        request = self._build_send_request(task, turn_id, request_context, addressee, budget)
        await aend_left_run(self._engine)
        return await self._astart_run(request)

    def _build_send_request(
        self,
        task: Task,
        turn_id: str | None,
        request_context: Mapping[str, Any] | None,
        addressee: Sequence[str],
        budget: Budget | None,
    ) -> SendRequest:
        contract = self.graph.agent.contract
        request = build_send_request(task, turn_id, request_context, addressee, contract)
        request.budget = self._check_budget(budget)
        return request

    def _check_budget(self, budget: Budget | None) -> Budget | None:
        """Return the budget of a turn, within what the root's permissions allow."""
        if budget is None:
            return None
        if not issubclass(type(budget), Budget):
            raise InvalidSetting("send", "budget", budget, "give a Budget, or leave it out")
        if budget.fault:
            raise InvalidSetting("send", "budget", budget, budget.fault)
        graph = self.graph
        allowed = graph.agent.permissions.budget
        limits = allowed.amounts if allowed else {}
        for unit, amount in budget.amounts.items():
            if unit in limits and amount > limits[unit]:
                why = (
                    f"the root's Permissions(budget=...) allow {format_amount(unit, limits[unit])}"
                )
                raise InvalidSetting("Budget", unit, amount, why)
        check_budgets(graph.agent, graph.models, budget, self.prices, needs_prices=True)
        estimator = budget.estimator or (allowed.estimator if allowed else None)
        whole: dict[str, Any] = {**limits, **budget.amounts}
        return Budget(**whole, warn_at=budget.warn_at, estimator=estimator)

    def answer(
        self,
        question: str | Mapping[str, Any],
        value: Any = MISSING,
        *,
        by: str | None = None,
    ) -> Run:
        """Answer pending questions and continue the turn.

        While another run holds the thread, the answers are left to it; if it dies before it
        delivers them, `resume` does.

        Args:
            question: A question's id, or several answers by their questions' ids.
            value: The answer, if one question is named; it may be `None`. About tool calls it is
                a `Decision`, its JSON, the word `"approve"` or `"reject"`, or a list of these.
            by: The caller, which is stored and not checked; the operating system's user if left
                out.

        Raises:
            QuestionError: No value is given; a value is given beside several answers.
            InvalidInput: A question's id is not a text.
            NoQuestionPending: Nothing is asked.
            QuestionError: A question named was never asked; `QuestionClosed` if it was,
                and is answered or withdrawn.
            WrongAnswer: An answer is not what its question asks for.
        """
        return self._start_run(build_answer_request(question, value, by))

    async def aanswer(
        self,
        question: str | Mapping[str, Any],
        value: Any = MISSING,
        *,
        by: str | None = None,
    ) -> AsyncRun:
        """Async version of `answer`."""
        return await self._astart_run(build_answer_request(question, value, by))

    def resume(self, path: str | None = None, *, by: str | None = None) -> Run:
        """Resume a turn that was stopped, killed or paused, or has failed.

        Args:
            path: The agent whose pause ends, with those below it; all pauses if left out.
            by: The caller, which is stored and not checked; the operating system's user if left
                out.

        Raises:
            ThreadBusy: Another run holds the thread.
            ThreadNotFound: The thread has never run.
            InterventionPending: Only answers can move it.
            NothingToResume: Its last turn is finished.
            ControlError: Nothing is paused at `path`.
        """
        end_left_run(self._engine)
        return self._start_run(ResumeRequest(path, choose_user_name(by)))

    async def aresume(self, path: str | None = None, *, by: str | None = None) -> AsyncRun:
        """Async version of `resume`."""
        await aend_left_run(self._engine)
        return await self._astart_run(ResumeRequest(path, choose_user_name(by)))

    def stop(self, path: str | None = None, *, by: str | None = None) -> str:
        """End an agent and all below it for the rest of this turn, in whichever process it runs.

        They start nothing more, and async work in progress is cancelled. If no run holds the
        thread, `resume` ends the turn, and so does the next `send`, whatever it had failed with.

        Args:
            path: The agent, such as `"head/north"`; the whole turn if left out.
            by: The caller, which is stored and not checked; the operating system's user if left
                out.

        Returns:
            Path of the stopped agent.

        Raises:
            ThreadNotFound: The thread has never run.
            ControlError: Its last turn is finished.
            UnknownPath: The tree has no such agent.
        """
        return run_plan(self._saver, self._give_order("stopped", path, by))

    async def astop(self, path: str | None = None, *, by: str | None = None) -> str:
        """Async version of `stop`."""
        return await arun_plan(self._saver, self._give_order("stopped", path, by))

    def repair(self, *ids: str, undo: bool = False, by: str | None = None) -> list[HideableMessage]:
        """Hide messages of this thread from its models, or list which could be hidden, and why.

        For a thread that does not go on, as a provider refuses what is in it. Hidden messages stay
        in the thread and in its trace; no model is shown them any more, nor the results of their
        calls. No model is called, and nothing is run: go on with `resume` or `send`. A fork from an
        earlier checkpoint begins without the repair.

        Args:
            ids: Ids of the messages, of any agent of the thread. Without any, nothing is changed.
            undo: Show them again; all that are hidden, if none is named.
            by: The caller, which is stored and not checked; the operating system's user if left
                out.

        Returns:
            Without `ids` and `undo`, the messages that providers may refuse, and those that are
            hidden, superiors first; else those that are hidden now.

        Raises:
            ThreadBusy: A run holds the thread.
            ThreadNotFound: The thread has never run.
            ThreadError: It has no message with one of the ids.
        """
        with self._name_thread_in_errors():
            return run_plan_steps(self._plan_repair(ids, undo, choose_user_name(by)))

    async def arepair(
        self, *ids: str, undo: bool = False, by: str | None = None
    ) -> list[HideableMessage]:
        """Async version of `repair`."""
        with self._name_thread_in_errors():
            return await arun_plan_steps(self._plan_repair(ids, undo, choose_user_name(by)))

    def _plan_repair(self, ids: Sequence[str], undo: bool, by: str) -> Plan[list[HideableMessage]]:
        engine = self._engine
        if not (ids or undo):
            return (yield engine.read(list_hideable(self.thread_id)))  # type: ignore[no-any-return]  # a plan is sent what it asked for
        yield PlanStep(partial(end_left_run, engine), partial(aend_left_run, engine))
        lease: Lease = yield engine.lease()
        try:
            plan = repair_thread(self.thread_id, self.thread, ids, by, lease.fence, undo=undo)
            return (yield engine.read(plan))  # type: ignore[no-any-return]  # as above
        finally:
            yield PlanStep(lease.release, lease.arelease)

    def dismiss(
        self, path: str, *, graceful: bool = False, by: str | None = None
    ) -> DismissedSubtree:
        """Dismiss an agent and all below it on this thread, for good, in whichever process it runs.

        They start nothing more, and async work in progress is cancelled; its superior reads
        `unable`, and goes on. Their questions are withdrawn, and nothing reaches them any more
        (`agent_dismissed`). If the root is dismissed, the turn ends, and the thread takes no other
        task. A fork from an earlier checkpoint begins without the dismissal.

        Args:
            path: The agent, such as `"head/north"`.
            graceful: Let those at work finish their request; they begin no other one, and make and
                call no subordinates.
            by: The caller, which is stored and not checked; the operating system's user if
                left out.

        Returns:
            What it has ended. To dismiss an agent again changes nothing, but that a graceful
            dismissal can be made an immediate one.

        Raises:
            UnknownPath: The tree has no such agent.
        """
        return run_plan(self._saver, self._dismiss(path, graceful, by))

    async def adismiss(
        self, path: str, *, graceful: bool = False, by: str | None = None
    ) -> DismissedSubtree:
        """Async version of `dismiss`."""
        return await arun_plan(self._saver, self._dismiss(path, graceful, by))

    def pause(self, path: str | None = None, *, by: str | None = None) -> str:
        """Pause an agent and all below it before their next model call, in any process.

        The others continue. `resume` ends the pause.

        Args:
            path: The agent, such as `"head/north"`; the whole tree if left out.
            by: The caller, which is stored and not checked; the operating system's user if left
                out.

        Returns:
            Path of the paused agent.

        Raises:
            ThreadNotFound: The thread has never run.
            ControlError: Its last turn is finished.
            UnknownPath: The tree has no such agent.
        """
        return run_plan(self._saver, self._give_order("paused", path, by))

    async def apause(self, path: str | None = None, *, by: str | None = None) -> str:
        """Async version of `pause`."""
        return await arun_plan(self._saver, self._give_order("paused", path, by))

    def send_message(self, path: str, text: str) -> str:
        """Send an agent a message, in whichever process it runs, or while it is idle or paused.

        It is no task: the agent reads it before its next model call, and in one more call if its
        last reply was under way. Each message is delivered once, those of one sender in order.

        Args:
            path: The agent, such as `"head/north"`.
            text: Its content, 64 KiB at most.

        Returns:
            Path of the receiver.

        Raises:
            UnknownPath: The tree has no such agent.
            ControlError: It was stopped, or reads no messages, such as a function; it has 1,000
                unread messages.
            InvalidInput: The text is empty, too large, or none.
        """
        return run_plan(self._saver, self._post_mail(path, text, "message"))

    async def asend_message(self, path: str, text: str) -> str:
        """Async version of `send_message`."""
        return await arun_plan(self._saver, self._post_mail(path, text, "message"))

    def steer(self, path: str, text: str) -> str:
        """Redirect an agent at work, in whichever process it runs.

        It is sent an intervention: a message that takes precedence over earlier ones, and cuts off
        the reply that is under way at its next chunk. The agent's text so far stays in its thread,
        and none of the calls of that reply runs. A model that sends no chunks ends its reply first,
        and calls that run already end, too.

        Args:
            path: The agent, such as `"head/north"`.
            text: The new instruction, 64 KiB at most.

        Returns:
            Path of the receiver.

        Raises:
            UnknownPath: The tree has no such agent.
            ControlError: It was stopped, or reads no messages, such as a function; it has 1,000
                unread messages.
            InvalidInput: The text is empty, too large, or none.
        """
        return run_plan(self._saver, self._post_mail(path, text, "intervention"))

    async def asteer(self, path: str, text: str) -> str:
        """Async version of `steer`."""
        return await arun_plan(self._saver, self._post_mail(path, text, "intervention"))

    def spawn(self, path: str, name: str) -> str:
        """Give an agent a new subordinate, which it keeps, made after one of `spawnable`.

        It waits like a message, and is there at the agent's next model call, which is told its
        name: that of the profile, with digits of its id.

        Args:
            path: The agent, such as `"head/north"`, whose `Permissions` have `spawn`.
            name: The name in `spawnable`.

        Returns:
            Path of the agent.

        Raises:
            SpawnRefused: The agent may make no subordinates, or none is called so.
            UnknownPath: The tree has no such agent.
            ControlError: It was stopped; it has 1,000 unread messages.
        """
        return run_plan(self._saver, self._post_spawn(path, name))

    async def aspawn(self, path: str, name: str) -> str:
        """Async version of `spawn`."""
        return await arun_plan(self._saver, self._post_spawn(path, name))

    def take_over(self) -> LeaseHolder:
        """Take the thread from a run of another process that hangs, and free it for `resume`.

        Later writes of that run are refused (`LeaseLost`). Effects that its tools still have in
        the world are not: end its process instead if you can, as its death frees the thread. A tool
        call that it is in the middle of is asked about (`OutcomeUnknown`), and may happen after the
        answer.

        Returns:
            Who held the thread: the process (`pid`), its machine (`host`), and since when
            (`since`, ISO 8601, UTC).

        Raises:
            ControlError: No run holds the thread, or one of this process does; or another process
                takes it over at the same moment.
            ThreadNotFound: The thread has never run.
            StorageError: The holder was stopped within a transaction: only its end frees the file.
        """
        return run_plan(self._saver, take_over_thread(self.thread_id, self.thread))

    async def atake_over(self) -> LeaseHolder:
        """Async version of `take_over`."""
        return await arun_plan(self._saver, take_over_thread(self.thread_id, self.thread))

    def inbox(self) -> list[Question]:
        """Return the questions that wait for an answer: urgent ones first, else as in the tree."""
        return run_plan(self._saver, read_open_questions(self.thread_id))

    async def ainbox(self) -> list[Question]:
        """Async version of `inbox`."""
        return await arun_plan(self._saver, read_open_questions(self.thread_id))

    def changes(self, path: str | None = None) -> list[ChangedFile]:
        """Return what agents would change in the workspace, with diffs and conflicts.

        Args:
            path: The agent, such as `"head/north"`; all agents if left out.

        Raises:
            WorkspaceError: The session has none.
            UnknownPath: The tree has no such agent.
        """
        return run_plan(self._saver, self._list_changes(path))

    async def achanges(self, path: str | None = None) -> list[ChangedFile]:
        """Async version of `changes`."""
        return await arun_plan(self._saver, self._list_changes(path))

    def merge(self, path: str) -> MergeResult:
        """Put the changes of an agent into the folder, file by file.

        A file that has been changed since is a conflict, which is left with its reason. If the
        process is killed meanwhile, call it again: it goes on where it was.

        Args:
            path: The agent, such as `"head/north"`.

        Returns:
            The files `merged`, and those `left`, each with the reason.

        Raises:
            WorkspaceError: The session has none.
            UnknownPath: The tree has no such agent.
        """
        return run_plan(self._saver, self._merge_changes(path))

    async def amerge(self, path: str) -> MergeResult:
        """Async version of `merge`."""
        return await arun_plan(self._saver, self._merge_changes(path))

    def discard(self, path: str, files: Sequence[str] = ()) -> list[str]:
        """Forget the changes of an agent; return their files.

        Args:
            path: The agent, such as `"head/north"`.
            files: The files whose changes are forgotten; all if left out.

        Raises:
            WorkspaceError: The session has none.
            UnknownPath: The tree has no such agent.
            WorkspaceError: One of the files has no path of a workspace.
        """
        return run_plan(self._saver, self._discard_changes(path, files))

    async def adiscard(self, path: str, files: Sequence[str] = ()) -> list[str]:
        """Async version of `discard`."""
        return await arun_plan(self._saver, self._discard_changes(path, files))

    def threads(self) -> list[RootThread]:
        """Return the root threads of the database, latest first."""
        return self.thread_store.roots()

    async def athreads(self) -> list[RootThread]:
        """Async version of `threads`."""
        return await self.thread_store.aroots()

    def registry(self) -> AgentRegistry:
        """Return the agents of this thread, with what each of them is doing.

        Answered from the stored thread alone, so it is the same in every process.
        """
        return self.thread_store.registry(self.thread_id, self._list_kinds())

    async def aregistry(self) -> AgentRegistry:
        """Async version of `registry`."""
        return await self.thread_store.aregistry(self.thread_id, self._list_kinds())

    def draw(self) -> RegistryDrawing:
        """Return a drawing of the agents of this thread with their states.

        It is text and Mermaid, in which each state has its colour; notebooks render it.
        """
        return RegistryDrawing(self.registry())

    async def adraw(self) -> RegistryDrawing:
        """Async version of `draw`."""
        return RegistryDrawing(await self.aregistry())

    def usage(self, path: str | None = None, *, branch: bool = False) -> UsageReport:
        """Return what the agents of this thread have used: tokens, calls, and what they cost.

        Answered from what is stored, so it is the same in every process; costs are of the session's
        `prices`.

        Args:
            path: An agent, such as `"head/north"`, for it and all below it; all agents if
                left out.
            branch: Whether only the branch counts on which the thread goes on. Otherwise all that
                was ever used counts, also before a fork of the past.

        Raises:
            UnknownPath: There is no agent at `path`.
        """
        return run_plan(self._saver, self._read_usage(path, branch))

    async def ausage(self, path: str | None = None, *, branch: bool = False) -> UsageReport:
        """Async version of `usage`."""
        return await arun_plan(self._saver, self._read_usage(path, branch))

    def trace(self) -> Trace:
        """Return everything that happened on this thread, as a tree.

        Raises:
            ThreadNotFound: The thread has never run.
        """
        with self._name_thread_in_errors():
            return self.thread_store.trace(self.thread_id)

    async def atrace(self) -> Trace:
        """Async version of `trace`."""
        with self._name_thread_in_errors():
            return await self.thread_store.atrace(self.thread_id)

    def _read_usage(self, path: str | None, branch: bool) -> ReadPlan[UsageReport]:
        try:
            report = yield from read_usage(self.thread_id, self.prices, branch=branch)
        except ThreadNotFound:
            report = UsageReport(prices=self.prices)
        if path is None:
            return report
        return report.select((yield from self._resolve(path)), sorted(self._list_paths()))

    def _give_order(self, order: ControlOrder, path: str | None, by: str | None) -> ReadPlan[str]:
        name = choose_user_name(by)
        kinds = self._list_kinds()
        with self._name_thread_in_errors():
            agent = None if path is None else (yield from self._resolve(path))
            return (yield from give_order(order, self.thread_id, agent, kinds, name))

    def _dismiss(self, path: str, graceful: bool, by: str | None) -> ReadPlan[DismissedSubtree]:
        if type(graceful) is not bool:
            raise invalid_option("graceful", shorten_repr(graceful), "give True or False")
        kinds, name = self._list_kinds(), choose_user_name(by)
        dismissed = yield from dismiss_agent(self.thread_id, path, kinds, name, graceful=graceful)
        return (yield from add_changes(self.thread_id, dismissed))

    def _post_spawn(self, path: str, name: str) -> ReadPlan[str]:
        """Give an agent another one, if it may have some that are made at run time."""
        spawnable = self._engine.spawnable
        if not isinstance(name, str) or name not in spawnable:
            listed = ", ".join(spawnable) or "none"
            raise SpawnRefused(f"no agent {name!r} can be spawned (spawnable: {listed})")
        path = yield from self._resolve(path)
        members = {place.path_text: place.member for place in walk_tree(self.graph.agent)}
        member = members.get(path)
        if member and get_permissions(member).spawn is None:
            why = "give it Permissions(spawn=Spawn(...))"
            raise SpawnRefused(f"{path!r} may make no subordinates; {why}")
        if member is None:
            registry = yield from read_registry(self.thread_id, self._list_kinds())
            if registry.get(path).spawn_levels == 0:
                why = "it is a drone, or on the last level that may be made"
                raise SpawnRefused(f"{path!r} may make no subordinates: {why}")
        return (yield from self._post_mail(path, name, "spawn"))

    def _post_mail(self, path: str, text: str, kind: MailKind) -> ReadPlan[str]:
        members = {place.path_text: place.member for place in walk_tree(self.graph.agent)}
        path = yield from self._resolve(path)
        if path in members and not isinstance(members[path], Agent):
            raise message_refused(path, NO_MODEL)
        with self._name_thread_in_errors():
            return (yield from post_mail(self.thread_id, path, text, members, kind))

    def _list_changes(self, path: str | None) -> ReadPlan[list[ChangedFile]]:
        paths = self._list_paths()
        workspace = self._get_workspace()
        agent = None if path is None else (yield from self._resolve(path))
        return (yield from list_changes(workspace, self.thread_id, agent, paths))

    def _merge_changes(self, path: str) -> ReadPlan[MergeResult]:
        workspace, agent = self._get_workspace(), (yield from self._resolve(path))
        paths = self._list_paths()
        return (yield from merge_agent_changes(workspace, self.thread_id, agent, paths))

    def _discard_changes(self, path: str, files: Sequence[str]) -> ReadPlan[list[str]]:
        workspace, agent = self._get_workspace(), (yield from self._resolve(path))
        # A text is a list of its letters, too.
        files = [files] if isinstance(files, str) else files
        paths = self._list_paths()
        return (yield from discard_changes(workspace, self.thread_id, agent, files, paths))

    def _get_workspace(self) -> Workspace:
        if self._workspace is None:
            raise no_workspace()
        return self._workspace

    def _list_paths(self) -> frozenset[str]:
        return frozenset(place.path_text for place in walk_tree(self.graph.agent))

    def _list_kinds(self) -> dict[str, AgentKind]:
        """Return what the members and monitors of the tree are, by their paths."""
        kinds = {
            place.path_text: AgentKind.DECLARED
            if isinstance(place.member, Agent)
            else AgentKind.HUMAN
            if isinstance(place.member, Human)
            else AgentKind.FOREIGN
            for place in walk_tree(self.graph.agent)
        }
        for feature, result in self.graph.made.items():
            kinds |= feature.list_members(result)
        return kinds

    def _resolve(self, agent: object) -> ReadPlan[AgentPath]:
        """Return the path of an agent by its path, its id, or its name for people."""
        return resolve_agent(self.thread_id, agent, self._list_kinds())

    def _find_addressee(self, agent: str) -> ReadPlan[tuple[str, ...]]:
        """Return the names below the root on the path of an agent that can be sent a task."""
        path = yield from self._resolve(agent)
        if path not in (known := self._list_paths()):
            registry = yield from read_registry(self.thread_id, self._list_kinds())
            kept = {
                record.path
                for record in registry.agents
                if record.kind in (AgentKind.MORTAL, AgentKind.DRONE)
                and record.state is not AgentState.DISMISSED
            }
            if path not in kept:
                raise UnknownPath(path, sorted({*known, *kept}))
        return path.parts[1:]

    @contextmanager
    def _name_thread_in_errors(self) -> Iterator[None]:
        """Let an error name the thread as its users do, not by its id."""
        try:
            yield
        except ThreadNotFound as error:
            raise ThreadNotFound(self.thread) from error
        except ThreadBusy as busy:
            raise ThreadBusy(self.thread, busy.pid, busy.since) from busy

    def _start_run(self, request: SessionRequest) -> Run:
        # Refused at once, not only at the first event.
        run_plan(self._saver, self._engine.check_request(request))
        return Run(self._engine, request)

    async def _astart_run(self, request: SessionRequest) -> AsyncRun:
        await arun_plan(self._saver, self._engine.check_request(request))
        return AsyncRun(self._engine, request)


def _describe_foreign_saver(saver: BaseCheckpointSaver[Any]) -> str:
    return (
        f"a Session on {type(saver).__name__} keeps its leases, turns, answers and records of tool "
        "calls in the memory of this process: a second process is not kept off the thread, and "
        "after a crash a submitted turn or a tool call that was cut short runs again, and an "
        "answer that was not delivered is lost. Give Session the path of a SQLite database, or "
        "see docs/guarantees.md, 'A session with another saver'"
    )
