"""`ToldRun`: what the user is asked by a function, Runnable or graph that is a subordinate.

The journal keeps the questions while the run waits, and its answer is marked with them, so that its
superior reads. A run that never asks is not in the journal.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.effects.journal import (
    CallQuestion,
    CallStart,
    CallState,
    EffectCall,
    EffectKind,
    Journal,
    JournalEntry,
)
from echelons.identity.lineage import USER_ANSWERS_KEY
from echelons.langgraph_internals import RESUMING_KEY
from echelons.models.door.inner_calls import InnerCalls
from echelons.nodes.base_node import Node
from echelons.nodes.tool_execution.journaled_call import build_journal_call
from echelons.nodes.tool_execution.scratchpad import Scratchpad
from echelons.nodes.tool_execution.user_answers import (
    build_unjournaled_answers,
    list_user_answers,
    note_answers,
    note_questions,
)
from echelons.plans import PlanStep, arun_plan_steps, run_plan_steps


class ToldRun(Node):
    """The node of a subordinate that is no agent, whose superior reads its questions.

    Args:
        node: Runs it.
        member: Its name.
        journal: Keeps its questions.
    """

    def __init__(self, node: Node, member: str, journal: Journal) -> None:
        super().__init__(node.name or "", node.deps)
        self._node = node
        self._member = member
        self._journal = journal

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run it, and return its answer with what the user was asked.

        Raises:
            GraphInterrupt: It asks.
        """
        plan = self._plan(self._build_step(input, config, kwargs), config or {})
        return run_plan_steps(plan)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        plan = self._plan(self._build_step(input, config, kwargs), config or {})
        return await arun_plan_steps(plan)

    def _build_step(
        self, given: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> PlanStep:
        node, around = self._node, config or {}

        def run() -> Any:
            with InnerCalls(around):
                return node.invoke(given, config, **kwargs)

        async def arun() -> Any:
            with InnerCalls(around):
                return await node.ainvoke(given, config, **kwargs)

        return PlanStep(run, arun)

    def _plan(self, run: PlanStep, config: RunnableConfig) -> Generator[PlanStep, Any, Any]:
        journal, pad = self._journal, Scratchpad(config)
        call = build_journal_call(config, "", self._member, {}, EffectKind.READS_ONLY)
        step = partial(self._build_journal_step, config=config)
        keeps, entry = journal.keeps(config), cast("JournalEntry | None", None)
        if keeps and config["configurable"].get(RESUMING_KEY):
            entry = yield step(partial(journal.find, call, config))
        if entry and entry.state is not CallState.DONE:
            told = note_answers(entry, pad, pad.answers)
            if told != entry.told:
                # Before it goes on: the answers are known now alone.
                now = replace(entry, at="", told=told)
                entry = yield step(partial(journal.note, call, now, config))
        try:
            update = yield run
        except GraphInterrupt as stop:
            told = note_questions(entry.told if entry else (), stop.args[0] if stop.args else ())
            if keeps and told and (entry is None or told != entry.told):
                yield from self._suspend(call, entry, told, config)
            raise
        if entry and entry.state is CallState.DONE:
            # Death has undone the step that was marked with them.
            return _mark(update, entry.result)
        told_unkept = [] if keeps else build_unjournaled_answers(self._member, pad.answers)
        marks = list_user_answers(told_unkept, entry.told if entry else ())
        if entry:
            yield step(partial(journal.end, call, entry, marks, config))
        return _mark(update, marks)

    def _suspend(
        self,
        call: EffectCall,
        entry: JournalEntry | None,
        told: tuple[CallQuestion, ...],
        config: RunnableConfig,
    ) -> Generator[PlanStep, Any, None]:
        """Keep the questions of a run that waits, unless its agent was dismissed meanwhile."""
        if entry is None:
            begun: CallStart = yield self._build_journal_step(
                partial(self._journal.begin, call, config), config
            )
            if begun.halt:
                return
            entry = begun.entry
        now = replace(entry, state=CallState.SUSPENDED, at="", told=told)
        yield self._build_journal_step(partial(self._journal.note, call, now, config), config)

    def _build_journal_step(self, work: Any, config: RunnableConfig) -> PlanStep:
        return PlanStep(work, partial(self._journal.arun, work, config))


def _mark(update: Any, marks: list[dict[str, Any]]) -> Any:
    """Return the update of a run, its answer marked with the report to its superior."""
    messages = update.get("messages") or ()
    if not (marks and messages and isinstance(messages[-1], AIMessage)):
        return update
    metadata = {**messages[-1].response_metadata, USER_ANSWERS_KEY: marks}
    answer = messages[-1].model_copy(update={"response_metadata": metadata})
    return {**update, "messages": [*messages[:-1], answer]}
