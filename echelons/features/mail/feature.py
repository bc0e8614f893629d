"""`MailFeature`: messages to agents at work, which can cut a reply that is being streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from echelons.checkpoints.coordination.mailbox import (
    LATER,
    MAIL,
    MAIL_READ,
    MAIL_SENT,
    MAILBOX,
    STEERED,
)
from echelons.delegation.mail import Mail, Mailboxes, SiblingRule, get_mailboxes, render_mail
from echelons.delegation.spawned_agents import GIVEN, build_given_agent
from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    BuiltIn,
    Feature,
    GateScope,
    ModelCall,
    Outcome,
    Place,
)
from echelons.features.mail.guard import TreeMailboxes
from echelons.features.mail.tools import SendMessage, build_answers, route_message
from echelons.guards.gate import StepGuard, get_gate
from echelons.identity.lineage import ADDED_KEY, ASIDE_KEY, CUT_KEY, Identity, derive_message_id
from echelons.models.door import note_cut
from echelons.models.notices import clean_reply
from echelons.nodes.model_call import ModelAnswer
from echelons.nodes.planning.final_answer import WITHDRAWN_REPORT, is_paused
from echelons.nodes.planning.reply_handler import adopt_reply
from echelons.nodes.planning.tool_calls import find_unanswered
from echelons.plans import Plan, PlanStep
from echelons.tree.names import ASK, ASK_SUPERIOR, PATH_SEPARATOR, REPORT, SEND_MESSAGE

NOTHING_SAID = "…"
"""The text of a reply that was cut off before it had any; many providers refuse an empty one."""


class ReplyCut(BaseException):
    """Ends a synchronous model call at a chunk of its reply.

    No `Exception`: a retry or a fallback around the model would catch that and call a model again,
    and LangChain would log it as a failure of its handler.
    """


class CutOnIntervention:
    """A block with a model call, which an intervention ends at the next chunk of the reply.

    Args:
        mailboxes: Know of interventions.
        config: The config of the node that calls the model.

    Attributes:
        said: The text of the model so far, if the reply was cut off.
    """

    def __init__(self, mailboxes: Mailboxes, config: Mapping[str, Any]) -> None:
        self.said: Sequence[BaseMessage] = ()
        self._mailboxes = mailboxes
        self._config = config

    def __enter__(self) -> Self:
        self._mailboxes.begin_reply(self._config, self._cut)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._mailboxes.end_reply(self._config, has_failed=kind not in (None, ReplyCut))
        return kind is ReplyCut

    def _cut(self, chunks: Sequence[BaseMessage]) -> NoReturn:
        self.said = chunks
        raise ReplyCut


class CancelOnIntervention:
    """`CutOnIntervention` in an event loop, where it cancels the call, as a stop does.

    LangChain's `agenerate` fails at what is neither an `Exception` nor a cancellation.
    """

    def __init__(self, mailboxes: Mailboxes, config: Mapping[str, Any]) -> None:
        self.said: Sequence[BaseMessage] = ()
        self._mailboxes = mailboxes
        self._config = config
        self._inside = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a model is called outside of a task")
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._inside = True
        self._mailboxes.begin_reply(self._config, self._cut)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._inside = False
        self._mailboxes.end_reply(self._config, has_failed=kind is not None and not self.said)
        if not self.said:
            return False
        # Another cancellation of the task must stay in effect.
        only_ours = self._task.uncancel() <= self._before
        return only_ours and kind is asyncio.CancelledError

    def _cut(self, chunks: Sequence[BaseMessage]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing runs any more
            self._loop.call_soon_threadsafe(self._cancel, chunks)

    def _cancel(self, chunks: Sequence[BaseMessage]) -> None:
        # The reply may have ended by itself.
        if self._inside and not self.said:
            self.said = chunks
            self._task.cancel()


def join_chunks(chunks: Sequence[BaseMessage]) -> AIMessage:
    """Return what is kept of a reply that was cut off at a chunk."""
    first, *others = chunks
    merged: Any = first
    for chunk in others:
        merged += chunk
    return build_cut_message(merged)


def build_cut_message(reply: AIMessage) -> AIMessage:
    """Return what is kept of a reply that is cut off: its text, and its usage if it was reported.

    Its calls are dropped, so also what of its content may be a part of one.
    """
    return AIMessage(
        str(reply.text) or NOTHING_SAID,
        id=reply.id,
        name=reply.name,
        usage_metadata=reply.usage_metadata,
        response_metadata=dict(reply.response_metadata),
    )


def mark_cut(reply: AIMessage) -> AIMessage:
    """Return a reply with the mark that it was cut off by an intervention."""
    metadata = {**reply.response_metadata, CUT_KEY: "intervention"}
    return reply.model_copy(update={"response_metadata": metadata})


_NOT_ASKED = "not asked: a message has come in meanwhile; read it below and ask again"
_WITHDRAWN = {REPORT: WITHDRAWN_REPORT, ASK: _NOT_ASKED, ASK_SUPERIOR: _NOT_ASKED}
"""The answers to reports and questions that were made before their agent had read a message."""


def build_mail_messages(mail: Sequence[Mail], identity: Identity) -> list[BaseMessage]:
    """Return mail as messages for the model."""
    return [_build_mail_message(message, identity) for message in mail]


def _build_mail_message(mail: Mail, identity: Identity) -> BaseMessage:
    path = PATH_SEPARATOR.join(identity.path)
    message_id = derive_message_id(identity.thread_id, f"mail/{path}/{mail.number}")
    metadata: dict[str, Any] = {ASIDE_KEY: mail.to_metadata()}
    to = mail.to
    if mail.kind == "spawn":
        spec = build_given_agent(mail.text, message_id, identity)
        to, metadata[ADDED_KEY] = spec.name, {GIVEN: {spec.name: spec.stored()}}
    text = render_mail(mail.sender, mail.text, mail.kind, to)
    return HumanMessage(text, id=message_id, response_metadata=metadata)


def leave_out(read: Sequence[Mail], mail: Sequence[Mail]) -> list[Mail]:
    """Return mail without the messages that are known already."""
    numbers = {message.number for message in read}
    return [message for message in mail if message.number not in numbers]


def has_intervention(mail: Sequence[Mail]) -> bool:
    """Return whether mail has an intervention in it."""
    return any(message.kind == "intervention" for message in mail)


def settle_late_mail(
    update: dict[str, Any], late: Sequence[Mail], identity: Identity
) -> tuple[dict[str, Any], Sequence[Mail]]:
    """Return the update for a reply during which mail has come in, and that mail.

    An intervention cuts the reply off, before any of its calls runs. Other mail gives one more
    model call where the reply would end the segment, and else waits for the next.
    """
    messages = update["messages"]
    reply, calls = find_unanswered(messages)
    # Nothing may stand between a paused reply and its continuation.
    ends = not (calls or is_paused(messages))
    ends = ends and bool(update.get("response") or messages[-1] is reply)
    # Whatever follows the reply leads back to the model.
    if not ends and reply and has_intervention(late):
        kept = messages[: messages.index(reply)]
        cut_reply = mark_cut(build_cut_message(reply))
        return {"messages": [*kept, cut_reply, *build_mail_messages(late, identity)]}, late
    if not ends or not late:
        return update, ()
    left = {key: value for key, value in update.items() if key != "response"}
    answered = map(_withdraw_end, messages)
    return {**left, "messages": [*answered, *build_mail_messages(late, identity)]}, late


def _withdraw_end(message: BaseMessage) -> BaseMessage:
    if isinstance(message, ToolMessage) and message.status != "error":
        withdrawn = _WITHDRAWN.get(message.name or "")
        return message.model_copy(update={"content": withdrawn}) if withdrawn else message
    return message


class MailHooks(AgentHooks):
    """The mail of one agent.

    Args:
        place: The agent at its place.
    """

    def __init__(self, place: Place) -> None:
        policy = place.superior_policy
        self._rule: SiblingRule = policy.sibling_messages if policy else "refuse"
        is_needed = place.reports and place.reach.has_listeners
        send = SendMessage(place.siblings, is_needed=is_needed)
        self.tools: Sequence[BuiltIn] = (send,) if place.can_call else ()

    def has_news(self, config: RunnableConfig) -> Plan[bool]:
        """Return whether the agent has messages that it has not read."""
        # Skip the mailbox if no message was ever sent in this thread.
        has_mail = get_mailboxes(get_gate(config)).has_mail
        return has_mail and bool((yield _read(config)))

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Show the model its messages; send those of the reply, and show what came meanwhile."""
        mailboxes, config, mail = get_mailboxes(step.gate), step.config, list[Mail]()
        if mailboxes.has_mail and not is_paused(step.state["messages"]):
            mail = [*(yield _read(config))]
        shown = build_mail_messages(mail, step.identity) if mail else []
        outcome = yield from proceed(step.add_messages(shown))
        if outcome.cut:
            late = leave_out(mail, (yield _read(config)))
            cut_call, chunks = outcome.cut
            messages = cut_call.input.messages
            yield from note_cut(cut_call.model, messages, chunks, config, is_kept=bool(late))
            if not late:
                # Another thread of the same agent has read it.
                return (yield from self.around_step(step, proceed))
            yield _note_read([*mail, *late], config)
            reply = clean_reply(chunks, step.joined.mark)
            before = (step.past.messages, cut_call.step.state["messages"])
            reply = mark_cut(adopt_reply(reply, step.identity, before))
            outcome.update = {"messages": [reply, *build_mail_messages(late, step.identity)]}
        elif outcome.reply:
            update, late = outcome.update, list[Mail]()
            if mailboxes.has_mail and outcome.halt is None:
                late = leave_out(mail, (yield _read(config)))
            parsed = outcome.reply.parsed
            calls = parsed.list_calls(SEND_MESSAGE) if parsed.accepted else []
            if calls and not (outcome.halt or has_intervention(late)):
                sent = [route_message(call, step.identity, self._rule) for call in calls]
                posted = [message.mail for message in sent]
                errors = yield PlanStep(
                    partial(mailboxes.post, posted, config),
                    partial(mailboxes.apost, posted, config),
                )
                update["messages"] += build_answers(sent, errors)
            if mail or late:
                outcome.update, read = settle_late_mail(update, late, step.identity)
                yield _note_read([*mail, *read], config)
        else:
            # The model has not read them.
            return outcome
        outcome.added[:0] = shown
        return outcome

    def around_model(
        self, call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
    ) -> Plan[ModelAnswer]:
        """Let an intervention cut off the reply."""
        answer = ModelAnswer()
        block = CancelOnIntervention if call.step.is_async else CutOnIntervention
        with block(get_mailboxes(call.step.gate), call.config) as cut:
            answer = yield from proceed(call)
        return ModelAnswer(cut=join_chunks(cut.said)) if cut.said else answer


class MailFeature(Feature):
    """Messages to agents."""

    name: ClassVar[str] = "mail"
    records = (MAILBOX, MAIL, MAIL_READ, MAIL_SENT, STEERED, LATER)

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the mail of an agent: any may be sent a message."""
        return MailHooks(place)

    def guard(self, run: GateScope) -> StepGuard | None:
        """Return the mailboxes of a run; none without a saver, as nothing could write to them."""
        return TreeMailboxes(run.saver, run.thread_id) if run.saver else None


FEATURE = MailFeature()


def _read(config: RunnableConfig) -> PlanStep:
    """Return the step that reads the unread messages of an agent."""
    mailboxes = get_mailboxes(get_gate(config))
    return PlanStep(partial(mailboxes.read, config), partial(mailboxes.aread, config))


def _note_read(mail: Sequence[Mail], config: RunnableConfig) -> PlanStep:
    """Return the step after which messages count as read."""
    mailboxes = get_mailboxes(get_gate(config))
    return PlanStep(
        partial(mailboxes.note_read, mail, config), partial(mailboxes.anote_read, mail, config)
    )
