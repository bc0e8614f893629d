"""`UsageReport`: what the agents of threads have used, in sums by agent, thread, day and model.

Sums of stored calls: one for each reply of a model, or for what it was charged, and one for each
call of a tool. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from echelons.errors import UnknownPath
from echelons.guards.budget import format_amount, format_number
from echelons.guards.prices import Prices, add_money, format_money
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR

CallState: TypeAlias = Literal["reported", "unknown", "charged", "estimated", "lost", "reserved"]
UsageGroup: TypeAlias = Literal["agent", "subtree", "thread", "tree", "day", "model"]
USAGE_GROUPS: Final = ("agent", "subtree", "thread", "tree", "day", "model")
"""By what the sums of a report may be grouped."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """One call of a model or a tool, as it is stored.

    Attributes:
        kind: Whether a model or a tool was called.
        state: Of a reply, `reported` or `unknown`; of a charge, its state. A call that was charged
            as `unknown` has `charged_tokens`.
        thread_id: LangGraph's id of the thread.
        agent_thread_id: The thread of the agent that made it.
        path: The agent's path.
        at: When it ended, ISO 8601, UTC; empty if that is not known.
        model: The name that the model reports.
        input_tokens: Tokens that the model has read.
        output_tokens: Tokens that it has written.
        cached_tokens: Those of the tokens read that were in its provider's cache.
        charged_tokens: Tokens that were charged, and that no model has reported.
        money: The charge; `None` if no price was known then.
        currency: That of the money.
        inherited: Whether it came with the copy of a thread, in which it was made.
    """

    kind: Literal["model", "tool"]
    state: CallState
    thread_id: str
    agent_thread_id: str
    path: AgentPath
    at: str
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    charged_tokens: int = 0
    money: Decimal | None = None
    currency: str = ""
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class GrantedAmount:
    """A grant of one unit, and its use.

    Attributes:
        path: Path of the agent that may spend it, with all below it.
        thread_id: LangGraph's id of the thread.
        turn_id: The root's turn.
        grant_id: Id of the grant.
        unit: `tokens`, `money`, `calls`, `tool_calls` or `seconds`.
        granted: The whole amount.
        spent: The spent amount.
        reserved: The amount reserved for calls under way and for grants below it.
        closed: Whether its request was answered, or its turn is over; what was not spent is back.
        currency: That of money; empty for other units.
    """

    path: AgentPath
    thread_id: str
    turn_id: str
    grant_id: str
    unit: str
    granted: Decimal
    spent: Decimal
    reserved: Decimal
    closed: bool
    currency: str = ""

    @property
    def free(self) -> Decimal:
        """The rest; nothing once it is closed."""
        left = add_money(self.granted, -self.spent, -self.reserved)
        return Decimal(0) if self.closed else max(left, Decimal(0))

    @property
    def overdraft(self) -> Decimal:
        """The amount spent beyond the grant."""
        return max(add_money(self.spent, self.reserved, -self.granted), Decimal(0))

    def describe_left(self) -> str:
        """Return what is left of it, such as `"3,200 of 5,000 tokens left"`."""
        whole = format_amount(self.unit, self.granted, self.currency)
        return f"{format_number(self.free)} of {whole} left"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; amounts are texts, or they would not be exact."""
        amounts = {
            name: format_money(getattr(self, name))
            for name in ("granted", "spent", "reserved", "free", "overdraft")
        }
        return {**asdict(self), **amounts}


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The sum of some calls.

    Attributes:
        input_tokens: Tokens that models have read, as they report them.
        output_tokens: Tokens that they have written.
        cached_tokens: Those of the tokens read that were in a provider's cache.
        model_calls: Calls of models that were answered, or charged as `unknown`.
        tool_calls: Calls of tools.
        unknown_calls: Model calls of which no tokens are known.
        estimated_calls: Model calls that were charged by an estimate.
        lost_calls: Calls that ended with their process, were charged, and were made again; they are
            no `model_calls` or `tool_calls`.
        reserved_calls: Calls under way.
        charged_tokens: Tokens that were charged and that no model has reported: of unknown,
            estimated, lost and reserved calls.
        cost: The cost of those calls whose price is known; `None` if none is.
        unpriced_calls: Model calls whose price is not known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    unknown_calls: int = 0
    estimated_calls: int = 0
    lost_calls: int = 0
    reserved_calls: int = 0
    charged_tokens: int = 0
    cost: Decimal | None = None
    unpriced_calls: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, reported or charged."""
        return self.input_tokens + self.output_tokens + self.charged_tokens

    def __add__(self, other: UsageTotals) -> UsageTotals:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return UsageTotals(**sums, cost=add_money(*costs) if costs else None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; the cost is a text."""
        cost = None if self.cost is None else format_money(self.cost)
        return {**asdict(self), "tokens": self.tokens, "cost": cost}


_COUNTS = tuple(name for name in UsageTotals.__dataclass_fields__ if name != "cost")


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The usage of agents: calls of models and tools, and grants.

    A copied thread has the calls of its original as `inherited` ones. They count against its
    limits and grants, but in no sum, except for `inherited`: so the sums of several threads have
    each call once.

    Attributes:
        calls: The stored calls, oldest first for each thread.
        grants: The grants by id and unit, superiors first.
        prices: The prices of models' tokens; `None` if that is not known.
    """

    calls: Sequence[StoredCall] = ()
    grants: Sequence[GrantedAmount] = ()
    prices: Prices | None = None

    @property
    def total(self) -> UsageTotals:
        """The sum of all, without inherited ones."""
        return self._sum(lambda _: "").get("", UsageTotals())

    @property
    def inherited(self) -> UsageTotals:
        """The sum of the calls that came with the copy of a thread."""
        return self._sum(lambda _: "", inherited=True).get("", UsageTotals())

    @property
    def currency(self) -> str:
        """The currency of the costs; empty if there are none."""
        if self.prices:
            return self.prices.currency
        return next((call.currency for call in self.calls if call.money is not None), "")

    @property
    def unpriced_models(self) -> tuple[str, ...]:
        """The names of the models without a price, in order; empty if no prices were given."""
        if not self.prices:
            return ()
        names = {call.model for call in self.calls if call.kind == "model" and call.model}
        return tuple(sorted(name for name in names if not self.prices.covers(name)))

    def group(self, by: UsageGroup) -> dict[str, UsageTotals]:
        """Return the sums by agent or subtree (by path), thread, tree, day (UTC) or model.

        A subtree is an agent with all below it. A tree is all agents of a root's thread.

        Raises:
            ValueError: There is no such group.
        """
        if by not in USAGE_GROUPS:
            raise ValueError(f"{by!r} is no group; take one of {', '.join(USAGE_GROUPS)}")
        if by != "subtree":
            return self._sum(_KEYS[by])
        subtrees: dict[str, UsageTotals] = {}
        for path, totals in self._sum(_KEYS["agent"]).items():
            top = path
            while top:
                subtrees[top] = subtrees.get(top, UsageTotals()) + totals
                top = top.rpartition(PATH_SEPARATOR)[0]
        return dict(sorted(subtrees.items()))

    def select(self, path: str, known: Sequence[str] = ()) -> UsageReport:
        """Return the report of an agent and all below it.

        Args:
            path: The agent's path.
            known: Paths of agents that may have used nothing.

        Raises:
            UnknownPath: There is no such agent.
        """
        below = path + PATH_SEPARATOR
        calls = [call for call in self.calls if f"{call.path}{PATH_SEPARATOR}".startswith(below)]
        grants = [
            grant for grant in self.grants if f"{grant.path}{PATH_SEPARATOR}".startswith(below)
        ]
        if not calls and not grants and path not in known:
            paths = {call.path for call in self.calls} | {grant.path for grant in self.grants}
            raise UnknownPath(path, sorted({*known, *paths}))
        return replace(self, calls=calls, grants=grants)

    def _sum(
        self, key: Callable[[StoredCall], str | None], *, inherited: bool = False
    ) -> dict[str, UsageTotals]:
        """Return the sums by a key, in its order; in one pass."""
        currency, sums = self.currency, dict[str, _Sum]()
        for call in self.calls:
            if call.inherited == inherited and (group := key(call)) is not None:
                cost = self._find_cost(call, currency) if call.kind == "model" else None
                sums.setdefault(group, _Sum()).add(call, cost)
        return {group: sums[group].get_totals() for group in sorted(sums)}

    def _find_cost(self, call: StoredCall, currency: str) -> Decimal | None:
        if call.money is not None and call.currency == currency:
            return call.money
        prices = self.prices
        if not prices or call.state == "unknown" or call.charged_tokens:
            return None
        if not prices.covers(call.model):
            return None
        usage = {
            "input_tokens": call.input_tokens,
            "output_tokens": call.output_tokens,
            "input_token_details": {"cache_read": call.cached_tokens},
        }
        return prices.compute_cost(call.model, usage)


class _Sum:
    """A sum of calls while it is made."""

    __slots__ = ("cost", "counts")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.cost: Decimal | None = None

    def add(self, call: StoredCall, cost: Decimal | None) -> None:
        counts = self.counts
        if call.state in ("lost", "reserved"):
            counts[f"{call.state}_calls"] += 1
        else:
            counts[f"{call.kind}_calls"] += 1
        if call.kind == "tool":
            return
        counts["input_tokens"] += call.input_tokens
        counts["output_tokens"] += call.output_tokens
        counts["cached_tokens"] += call.cached_tokens
        counts["charged_tokens"] += call.charged_tokens
        if call.state in ("unknown", "estimated"):
            counts[f"{call.state}_calls"] += 1
        if cost is None:
            counts["unpriced_calls"] += 1
        else:
            self.cost = cost if self.cost is None else add_money(self.cost, cost)

    def get_totals(self) -> UsageTotals:
        return UsageTotals(**self.counts, cost=self.cost)


_KEYS: Mapping[str, Callable[[StoredCall], str | None]] = {
    "agent": lambda call: call.path,
    "thread": lambda call: call.agent_thread_id,
    "tree": lambda call: call.thread_id,
    "day": lambda call: call.at[:10],
    "model": lambda call: call.model if call.kind == "model" else None,
}
