"""Requests, which go down the tree, responses, which go up, and their usage of models.

Pydantic models, stored as JSON with their model's name and validated again when loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from echelons.delegation.contract import Contract
from echelons.delegation.questions import AgentQuestion
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import InvalidInput, UnreadableRecord
from echelons.guards.budget import Amount, Unit, load_amounts
from echelons.guards.gate import CallUsage
from echelons.tree.agent_path import AgentPath

MAX_HOPS = 10
"""Maximum hops of a request, unless the tree is deeper (source: recursive delegation)."""


USER = "user"
"""The origin of a root's request."""


class Status(StrEnum):
    """How a request ended."""

    __stored_as__ = "echelons.delegation.Status"

    FULFILLED = "fulfilled"
    PARTIAL = "partial"
    UNABLE = "unable"
    NEEDS_INPUT = "needs_input"


class _Record(BaseModel):
    """Base of the models that are stored as JSON with their class name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[int] = 1

    def stored(self) -> dict[str, Any]:
        """Return the record as JSON with its model's name and version."""
        return {
            "model": type(self).__name__,
            "version": self.version,
            **self.model_dump(mode="json", exclude_defaults=True),
        }

    @classmethod
    def load(cls, stored: object) -> Self:
        """Return the record from the JSON of `stored`, without the fields of a newer version."""
        if not isinstance(stored, Mapping) or stored.get("model") != cls.__name__:
            raise UnreadableRecord(cls.__name__, "it is not stored as one")
        try:
            return cls.model_validate(dict(stored), extra="ignore")
        except ValidationError as error:
            raise UnreadableRecord(cls.__name__, str(error)) from error


class Usage(BaseModel):
    """The usage of models by a piece of work.

    Attributes:
        input_tokens: Tokens that models have read, as they report them.
        output_tokens: Tokens that they have written.
        model_calls: Calls.
        unknown_calls: Those of the calls whose model has reported no tokens.
    """

    __stored_as__ = "echelons.delegation.Usage"

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    unknown_calls: int = 0

    @classmethod
    def from_call(cls, used: CallUsage) -> Self:
        """Return the usage of one call."""
        reported: Mapping[str, Any] = {} if used.is_estimated else used.usage or {}
        return cls(
            input_tokens=reported.get("input_tokens", 0),
            output_tokens=reported.get("output_tokens", 0),
            model_calls=1,
            unknown_calls=0 if reported else 1,
        )

    @model_serializer(mode="wrap")
    def _omit_zero(self, dump: SerializerFunctionWrapHandler) -> dict[str, int]:
        # As it was stored before there was such a count.
        stored: dict[str, int] = dump(self)
        if not self.unknown_calls:
            stored.pop("unknown_calls", None)
        return stored

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            model_calls=self.model_calls + other.model_calls,
            unknown_calls=self.unknown_calls + other.unknown_calls,
        )


class DelegationRequest(_Record):
    """A request of one agent to a subordinate.

    Attributes:
        id: Id of the request, derived from the call that made it.
        origin: Agent that made the request.
        current: Agent that has it now.
        task: The task in words.
        context: Facts that accompany the task, by name, as JSON: those that its author gave.
            `part of` is the whole task of which this one is a part.
        path: All agents from the root of the tree to the current one. Of a request that is read
            back without its run, as in a trace, only those from its origin on.
        max_hops: Maximum number of hops, counted from the root.
        attempts: Number of attempts so far, the current one included.
        budget: Its own budget, by unit: what its superior has granted it (`Budget`), with money
            as a text and the seconds of work as `active_seconds`; and `seconds`, what is left of
            the time for all candidates tried one after the other. Empty if it has no limit.
        deadline: When the current agent must have answered, in seconds since 1970 (UTC); time
            spent waiting for people is added.
        route: Agents that it still has to pass, the final one included, if it is relayed to an
            agent further down.
        why: Why routing has chosen the agent; empty if its superior named it.
        addressee: Agents below that it is passed on to, down to the one that the user means; each
            reads the answer of the next. Empty if it is for the agent itself.
        input: The fields of the input that the contract of its agent declares, as JSON; `None` for
            a task in words.
        siblings: Names of agents beside its agent that were made at run time.
        root_id: Id of the root's request, which is that of its turn. This and the next two are
            empty in a request that is read back without its run.
        parent_id: Id of the request that its superior works on.
        initiator: The origin of the root's request: `"user"`.
    """

    __stored_as__ = "echelons.delegation.DelegationRequest"

    id: str
    origin: str
    current: str
    task: str
    context: dict[str, Any] = Field(default_factory=dict)
    path: AgentPath = AgentPath()
    max_hops: int = MAX_HOPS
    attempts: int = 1
    budget: dict[str, int | float | str] = Field(default_factory=dict)
    deadline: float | None = None
    route: tuple[str, ...] = ()
    why: str = ""
    addressee: tuple[str, ...] = ()
    input: dict[str, Any] | None = None
    siblings: tuple[str, ...] = ()
    root_id: str = ""
    parent_id: str = ""
    initiator: str = ""

    _payload: BaseModel | None = PrivateAttr(default=None)

    @property
    def payload(self) -> BaseModel | None:
        """The input as an instance of its model; `None` if the agent at work has no such contract.

        Only the request that an agent works on has it, see `get_request`.
        """
        return self._payload

    def with_payload(self, payload: BaseModel | None) -> Self:
        """Return the request with its input as an instance of the model of a contract."""
        request = self.model_copy()
        request._payload = payload
        return request

    def within(self, superior: DelegationRequest | None, turn: str) -> Self:
        """Return the request with what it has of the one that its superior works on.

        `superior` is `None` if that is the root, whose request has the id of the turn.
        """
        above = superior.path if superior else AgentPath(self.path.parts[:1])
        whole, names = above / self.current, self.path.parts
        origin = superior or self
        return self.model_copy(
            update={
                # A path that was changed where it is stored is refused later.
                "path": whole if whole.parts[-len(names) :] == names else self.path,
                "root_id": origin.root_id or turn,
                "parent_id": superior.id if superior else turn,
                "initiator": origin.initiator or USER,
            }
        )

    @property
    def path_from_origin(self) -> AgentPath:
        """The agents from the one that made the request to the current one."""
        names = self.path.parts
        begin = names.index(self.origin) if self.origin in names else 0
        return AgentPath(names[begin:])

    @property
    def hops(self) -> int:
        """The number of levels that the request has gone down from the root."""
        return max(len(self.path.parts) - 1, 0)

    @property
    def seconds(self) -> float | None:
        """Seconds left for all of its candidates; `None` if there is no limit."""
        seconds = self.budget.get("seconds")
        return None if seconds is None else float(seconds)

    @property
    def granted(self) -> dict[Unit, Amount]:
        """The grant by its superior, by unit."""
        amounts = {key: amount for key, amount in self.budget.items() if key != "seconds"}
        if "active_seconds" in amounts:
            amounts["seconds"] = amounts.pop("active_seconds")
        try:
            return load_amounts(amounts)
        except ValueError as error:
            raise UnreadableRecord(type(self).__name__, f"budget: {error}") from error

    def with_time_spent(self, spent: float) -> Self:
        """Return the request with `spent` seconds taken from its budget."""
        if self.seconds is None:
            return self
        left = {**self.budget, "seconds": max(self.seconds - spent, 0.0)}
        return self.model_copy(update={"budget": left})


def store_request_budget(granted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request is granted, as it is stored in its `budget`."""
    stored = dict(granted)
    if "seconds" in stored:
        stored["active_seconds"] = stored.pop("seconds")
    return stored


def render_facts(context: Mapping[str, Any]) -> str:
    r"""Return the context of a request as text for a model, a line for each fact.

    Examples:
        >>> render_facts({"customer": {"id": 7}, "part of": "Mend it"})
        'customer: {"id": 7}\npart of: Mend it'
    """
    return "\n".join(
        f"{name}: {fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False)}"
        for name, fact in context.items()
    )


def render_input(fields: Mapping[str, Any]) -> str:
    r"""Return an input as a task in words: its only text, or a line for each field.

    Examples:
        >>> render_input({"query": "wine"}), render_input({"city": "Rome", "nights": 2})
        ('wine', 'city: Rome\nnights: 2')
    """
    only = next(iter(fields.values())) if len(fields) == 1 else None
    return only if isinstance(only, str) and only.strip() else render_facts(fields) or "{}"


class DelegationResponse(_Record):
    """The response to a request.

    Attributes:
        request_id: Id of the request.
        agent: Agent that answers.
        status: How the request ended.
        result: The answer in words; empty if there is none.
        confidence: The agent's confidence, 0 to 1.
        path: Agents from the request's origin to the one that answers.
        usage: Usage of models, including everything below; `subordinate_responses` has the parts.
        reason: Why the request is not fulfilled. If it is, empty, or that an agent with
            subordinates and without tools has asked none of them.
        partial_results: Parts of an answer, if the whole was not possible.
        subordinate_responses: Responses of the agent's own subordinates, or of the candidates
            tried before it. That of a `Result` has the result and the value of every one, as long
            as the threads of their agents are kept; in a stored message they are empty.
        thread_id: The thread on which the work was done, if several were tried.
        failed: Whether the agent is unable because of an error, a timeout, or because it was not
            called, rather than by its own statement.
        questions: The questions that must be answered first, if it asks with `ask`.
        output: The answer as the output of the agent's contract, as JSON: its `model` by name, and
            its `value`; `None` if it has no such contract, or is not fulfilled.
        side_responses: Responses of other subordinates that the superior's middleware asked
            meanwhile, each with its thread and without its result.
        user_answers: What the user was asked past the superior, and has answered: by the agent
            or its tools, and whether a call may run or has happened.
        end: How the agent's last reply ended, unless it is complete: `length`, `filtered`,
            `refused`, `paused` or `empty`.
    """

    __stored_as__ = "echelons.delegation.DelegationResponse"

    request_id: str
    agent: str
    status: Status
    result: str = ""
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    path: AgentPath = AgentPath()
    usage: Usage = Usage()
    reason: str = ""
    partial_results: tuple[str, ...] = ()
    subordinate_responses: tuple[DelegationResponse, ...] = ()
    thread_id: str = ""
    failed: bool = False
    questions: tuple[AgentQuestion, ...] = ()
    output: dict[str, Any] | None = None
    side_responses: tuple[DelegationResponse, ...] = ()
    user_answers: tuple[UserAnswer, ...] = ()
    end: str = ""

    _value: BaseModel | None = PrivateAttr(default=None)

    @property
    def awaits_answer(self) -> bool:
        """Whether its agent has asked something, and goes on when it is answered."""
        return bool(self.questions)

    @property
    def value(self) -> BaseModel | None:
        """The answer as an instance of the output's model, in a `Result` and in middleware.

        `None` without such a contract, or in a response that was read without its tree.
        """
        return self._value

    def with_value(self, contract: Contract | None) -> Self:
        """Return the response with its output, validated once more as what the contract declares.

        One that is not valid any more, since the model was changed, has none.
        """
        if self.output is None or contract is None or contract.output is None:
            return self
        response = self.model_copy()
        try:
            response._value = contract.read_output(self.output.get("value"))
        except InvalidInput:
            return self
        return response

    def stored(self) -> dict[str, Any]:
        """Return it as JSON, without the results below it, which their agents' threads have."""
        return _omit_results_below(super().stored())

    def to_artifact(self) -> dict[str, Any]:
        """Return it as the artifact of a tool message; the serializer omits the results below."""
        return super().stored()

    def with_thread(self, thread_id: str) -> Self:
        """Return it with the thread on which its agent goes on when its questions are answered."""
        if not self.questions:
            return self
        update = {"thread_id": thread_id}
        questions = tuple(question.model_copy(update=update) for question in self.questions)
        return self.model_copy(update={"questions": questions})


def omit_result(artifact: Any, content: Any) -> Any:
    """Return the artifact of a tool message for storage, without results that stand elsewhere.

    Its content may have that of the response, and the threads of agents those below it.
    """
    if not _is_response(artifact):
        return artifact
    artifact = _omit_results_below(artifact)
    if content and artifact.get("result") == content:
        return {**artifact, "result": None}
    return artifact


def _omit_results_below(response: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a response without the results of the responses below it."""
    below = response.get("subordinate_responses")
    if not isinstance(below, list) or not all(isinstance(part, dict) for part in below):
        return response
    kept = [{**_omit_results_below(part)} for part in below]
    for part in kept:
        part.pop("result", None)
    return {**response, "subordinate_responses": kept}


def restore_result(artifact: Any, content: Any) -> Any:
    """Return an artifact from `omit_result` with its result, any other unchanged."""
    has_text = type(content) is str and content != ""
    if has_text and _is_response(artifact) and artifact.get("result", "") is None:
        return {**artifact, "result": content}
    return artifact


_STORED_KEYS = frozenset({"model", "version", "request_id", "agent", "status"})


def _is_response(artifact: Any) -> bool:
    """Return whether an artifact is a stored response, rather than the artifact of a tool."""
    return (
        type(artifact) is dict
        and artifact.get("model") == DelegationResponse.__name__
        and artifact.keys() >= _STORED_KEYS
    )
