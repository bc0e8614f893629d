"""Asks a human whether a call may run, where the permissions of its agent say so.

The question comes before anything of the call has begun, and takes the first place among the
questions of its task. The rules are generators, whose steps are the blocking operations.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from echelons.delegation.approvals import (
    ApprovalAnswer,
    Decision,
    GuardedCall,
    StandingDecisions,
    build_approval_answer,
    build_approval_request,
    build_approval_schema,
    parse_decision,
)
from echelons.delegation.effects import EffectCall, EffectKind, Journal, get_effect_kind
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import InvalidSetting
from echelons.guards.permissions import ApprovalRule, RulesByName, judge_call
from echelons.models.notices import mark_notice
from echelons.nodes.messages import sanitize_message
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.nodes.tool_execution.journaled_call import INVALID_CALL_TEXT
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad, peek_first_answer
from echelons.nodes.tool_execution.user_answers import mark_user_answers
from echelons.plans import PlanStep

T = TypeVar("T")
ApprovalPlan: TypeAlias = Generator[PlanStep, Any, T]

NOT_ASKED: Final = {"type": "not_asked"}
"""In the first place among the answers of a task: the call was allowed, and nobody was asked.

Its `decision` is the one that held for it, if there was one."""


class ToolApproval(NamedTuple):
    """Whether a tool call may run.

    Attributes:
        answer: The outcome of asking.
        places: The value in the first place among the answers of the task, if that is ours: the
            tool's own questions come after it.
        told: The report to the superior of the agent.
    """

    answer: ApprovalAnswer
    places: Sequence[Any] = ()
    told: Sequence[UserAnswer] = ()


class ToolApprovals:
    """The approval of the tool calls of one agent.

    Args:
        rules: The rules that hold for the agent.
        tools: Its tools.
        journal: Knows the calls that have begun: they are not asked about any more.
        decisions: The decisions that hold for a whole thread.
    """

    def __init__(
        self,
        rules: RulesByName,
        tools: Sequence[BaseTool],
        journal: Journal,
        decisions: StandingDecisions,
    ) -> None:
        self._rules = {tool.name: rules[tool.name] for tool in tools if tool.name in rules}
        self._tools = {tool.name: tool for tool in tools}
        self._journal = journal
        self._decisions = decisions

    def may_hold(self, tool: str, config: RunnableConfig) -> bool:
        """Return whether a call may have to be approved.

        It may also have been asked about before its rule was removed: its answer holds.
        """
        if tool in self._rules:
            return True
        first = peek_first_answer(config)
        if first is MISSING or tool not in self._tools or not _is_decision(first):
            return False
        # Only the journal distinguishes an approval from an answer to the tool.
        is_journaled = get_effect_kind(self._tools[tool]) is not EffectKind.READS_ONLY
        return is_journaled and self._journal.keeps(config)

    def plan(self, call: EffectCall, config: RunnableConfig) -> ApprovalPlan[ToolApproval]:
        """Return whether a call may run, which a human may have to be asked.

        Raises:
            GraphInterrupt: A human is asked.
        """
        pad, journal = Scratchpad(config), self._journal
        is_journaled = call.effect_kind is not EffectKind.READS_ONLY and journal.keeps(config)
        if is_journaled:
            find = partial(journal.find, call, config)
            entry = yield PlanStep(find, partial(journal.arun, find, config))
            if entry:
                pad.restore_answers(entry.answers)
                first = pad.answers[0] if 0 in entry.ours else None
                return _build_tool_approval(call, read_first_answer(first))
        elif pad.answers and _is_not_asked(pad.answers[0]):
            # The tool itself has asked since then.
            return _build_tool_approval(call, read_first_answer(pad.answers[0]), pad.answers[:1])
        rules, schema = self._rules.get(call.tool, ()), _build_edit_schema(self._tools[call.tool])
        guarded = GuardedCall(
            call.thread_id, call.path, "tool", call.tool, call.arguments, call.call_id
        )
        answer = yield from plan_approval(guarded, rules, self._decisions, pad, config, schema)
        if not pad.answer_count and not is_journaled:
            # Nothing else would tell an answer to the tool's first question from an approval.
            pad.set_first_answer(NOT_ASKED)
        return _build_tool_approval(call, answer, pad.answers[:1])


def plan_approval(
    call: GuardedCall,
    rules: Sequence[ApprovalRule],
    decisions: StandingDecisions,
    pad: Scratchpad,
    config: RunnableConfig,
    edit_schema: Mapping[str, Any] | None = None,
) -> ApprovalPlan[ApprovalAnswer]:
    """Return whether a call that has not begun may run.

    Args:
        call: The call.
        rules: The rules for it on the path to its agent.
        decisions: The decisions that hold for a whole thread.
        pad: The answers of the task; the first is to this question, if there is one.
        config: The config of the task.
        edit_schema: The schema of the arguments that an edit may give; `None` if it takes no edit.

    Raises:
        GraphInterrupt: A human is asked.
    """
    ruling = judge_call(rules, call.name, call.arguments)
    if ruling == "deny":
        return ApprovalAnswer("denied")
    if ruling == "allow" and not pad.answer_count:
        return ApprovalAnswer("allowed")
    if pad.answer_count and _is_not_asked(pad.answers[0]):
        held = read_first_answer(pad.answers[0]).decision
        return _apply_decision(held, call, rules) if held else ApprovalAnswer("allowed")
    schema, fault = build_approval_schema(call, edit_schema), ""
    if (reply := pad.take_answer(0)) is not MISSING:
        # A session has checked it; LangGraph's `Command(resume=...)` has not.
        try:
            decision = parse_decision(call, schema, reply)
        except ValueError as error:
            fault = str(error)
            pad.discard_answers(0)
        else:
            if decision.scope:
                keep = partial(decisions.keep, call, decision, config)
                yield PlanStep(keep, partial(decisions.arun, keep, config))
            pad.set_first_answer(decision.to_json())
            return _apply_decision(decision, call, rules, by_person=True)
    elif standing := (
        yield PlanStep(
            partial(decisions.find, call, config), partial(decisions.afind, call, config)
        )
    ):
        # With the call, so that it is repeated as it was approved.
        pad.set_first_answer({**NOT_ASKED, "decision": standing.to_json()})
        return _apply_decision(standing, call, rules)
    raise pad.build_interrupt(0, build_approval_request(call, fault), schema)


def build_rejected_update(call: ToolCall, approval: ToolApproval) -> Any:
    """Return the update of a call that may not run, with the reason for the model."""
    message = ToolMessage(
        f"{INVALID_CALL_TEXT}{approval.answer.reason}",
        tool_call_id=call["id"] or "",
        name=call["name"],
        status="error",
    )
    # A tool might claim it: what a person has decided only the library can say.
    update = {"messages": [mark_notice(mark_refused(sanitize_message(message)))]}
    return mark_user_answers(update, call["id"], approval.told)


def _apply_decision(
    decision: Decision, call: GuardedCall, rules: Sequence[ApprovalRule], by_person: bool = False
) -> ApprovalAnswer:
    edited = decision.edited_action
    if edited and judge_call(rules, call.name, edited["args"]) == "deny":
        return ApprovalAnswer("denied")
    outcome: Final = "rejected" if decision.type == "reject" else "allowed"
    return ApprovalAnswer(outcome, decision, by_person)


def _build_tool_approval(
    call: EffectCall, answer: ApprovalAnswer, places: Sequence[Any] = ()
) -> ToolApproval:
    report = build_approval_answer("tool", call.tool, answer)
    return ToolApproval(answer, places, (report,) if report else ())


def _is_not_asked(answer: object) -> bool:
    return isinstance(answer, Mapping) and answer.get("type") == NOT_ASKED["type"]


def read_first_answer(answer: object) -> ApprovalAnswer:
    """Return the approval with which a call has begun, from the first answer of its task."""
    by_person = not _is_not_asked(answer)
    decision = answer if by_person or not isinstance(answer, Mapping) else answer.get("decision")
    try:
        return ApprovalAnswer("allowed", Decision.from_json(decision), by_person)
    except InvalidSetting:
        # It answers something else, or there is no decision.
        return ApprovalAnswer("allowed")


def _is_decision(answer: object) -> bool:
    """Return whether an answer may be a decision on a call."""
    kind = answer.get("type") if isinstance(answer, Mapping) else answer
    return isinstance(kind, str) and kind in ("approve", "edit", "reject")


def _build_edit_schema(tool: BaseTool) -> Mapping[str, Any]:
    schema: Any = tool.tool_call_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return schema if isinstance(schema, Mapping) else {"type": "object"}
    # What the tool does not know it would pass over, and so would a misspelt argument.
    return {"additionalProperties": False, **schema.model_json_schema()}
