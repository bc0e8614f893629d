"""The records of monitors: where they are, what they have read, their verdicts and alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import uuid5

from langchain_core.messages import AIMessage

from echelons.agent import Agent, bind_state
from echelons.checkpoints.coordination.dismissal_ledger import find_dismissal
from echelons.checkpoints.coordination.gate import METER, Meter
from echelons.checkpoints.coordination.mailbox import (
    LATER,
    LaterQuestion,
    StoredMail,
    add_mail,
    check_room,
)
from echelons.checkpoints.coordination.orders import GivenOrder, read_orders, record_order
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.thread_events import (
    EventKind,
    ThreadEvent,
    WriteLocation,
    build_thread_events,
)
from echelons.delegation.mail import MailKind
from echelons.delegation.policy import AlertDecision, DelegationPolicy
from echelons.delegation.questions import AgentQuestion
from echelons.errors import ConfigurationError, ControlError, invalid_field, model_cannot_call
from echelons.features.monitors.settings import Alert, Monitor
from echelons.guards.budget import Amount, Unit, format_amount, format_number
from echelons.guards.gate import CallUsage, Halt, Pause, Step
from echelons.guards.limits import Limits
from echelons.guards.prices import Prices, add_money, format_money
from echelons.identity.lineage import ECHELONS_NS
from echelons.models import resolve_model
from echelons.nodes.model_call import supports_tool_calls
from echelons.prompts import build_monitor_guidance, load_monitor_texts
from echelons.text.error_lines import join_printable, sanitize_value
from echelons.tree.members import walk_tree
from echelons.tree.names import PATH_SEPARATOR, REPORT


@dataclass(frozen=True, slots=True)
class PlacedMonitor:
    """A monitor at its place in a tree."""

    monitor: Monitor
    path: str
    superior: str
    # It watches this agent and all below it.
    watched: str
    model: Any
    # What its superior does about its alerts, see `DelegationPolicy`.
    on_alert: Any = "tell"


def place_monitors(
    root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
) -> tuple[PlacedMonitor, ...]:
    """Return the monitors of a tree with their models.

    Raises:
        ConfigurationError: A monitor has no model that could judge: it gives none, and its superior
            has the offline planner, or a function that chooses.
        ModelError: A named model is unknown, or lacks a key, its package or what else it needs; the
            model of a monitor has no tool calls.
    """
    paths = {place.member.name: place.path_text for place in walk_tree(root)}
    placed: list[PlacedMonitor] = []
    # Those that have a model, their own or an inherited one.
    with_model: set[str] = set()
    for place in walk_tree(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        if agent.model is not None or (len(place.path) > 1 and place.path[-2] in with_model):
            with_model.add(agent.name)
        for monitor in agent.monitors:
            model = monitor.model
            if model is None and (agent.name not in with_model or bind_state(models[agent.name])):
                why = "a chat model; the superior has none that could judge"
                raise invalid_field(monitor.name, "model", None, why)
            if model is None:
                model = models[agent.name]
            elif isinstance(model, str):
                model = resolve_model(model)
            if not supports_tool_calls(model):
                raise model_cannot_call(monitor.name, type(model).__name__)
            watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or agent.name
            path = PATH_SEPARATOR.join((*place.path, monitor.name))
            rule = policies[agent.name].on_alert
            placed.append(
                PlacedMonitor(monitor, path, place.path_text, paths[watched], model, rule)
            )
    return tuple(placed)


ALERT = "alert"
"""The tool with which a monitor alerts; the other one is called as the `report` of agents."""
MAX_EVENTS = 200
"""Most events that a monitor reads in one call; it reads further ones in the next."""
MAX_EVENT_LENGTH = 600
"""Characters of one event that a monitor reads."""
MAX_REASON_LENGTH = 1000
"""Characters of a reason or a report that are kept."""
MAX_ALERTS = 10
"""Most alerts of one reply."""
MAX_NOTES = 10
"""Most of its own latest verdicts that a monitor reads again."""


class WatchedEvent(NamedTuple):
    """An event as a monitor reads it."""

    number: int
    path: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a monitor on the events that it has read."""

    alerts: tuple[Alert, ...] = ()
    # Notes for people.
    reports: tuple[str, ...] = ()
    # What of the reply could not be used, and why.
    faults: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict as lines that the monitor reads in its next call."""
        return (
            *(f"alert about {alert.path}: {alert.reason}" for alert in self.alerts),
            *(f"report: {report}" for report in self.reports),
            *(f"not accepted: {fault}" for fault in self.faults),
        )


def build_system_text(placed: PlacedMonitor) -> str:
    """Return what a monitor's model reads first."""
    monitor = placed.monitor
    guidance = build_monitor_guidance(
        placed.path, monitor.description, placed.watched, placed.superior
    )
    return f"{guidance}\n\n{monitor.prompt}" if monitor.prompt else guidance


def build_segment_text(events: Sequence[WatchedEvent], notes: Sequence[str]) -> str:
    r"""Return some events for a monitor's model, each quoted, as it may hold anything.

    Examples:
        >>> print(build_segment_text([WatchedEvent(7, "head", "message", "Go\n# on")], []))
        The new events, oldest first:
        {"event": 7, "agent": "head", "kind": "message", "says": "Go\n# on"}
    """
    lines = [f"You have said before, oldest first: {_quote([*notes])}"] if notes else []
    lines.append("The new events, oldest first:")
    for event in events:
        shown = {"event": event.number, "agent": event.path, "kind": event.kind, "says": event.text}
        lines.append(_quote(shown))
    return "\n".join(lines)


def build_verdict_tools() -> list[dict[str, Any]]:
    """Return the two tools of a monitor, as JSON Schemas."""
    texts = load_monitor_texts()
    return [
        _build_tool(ALERT, texts[ALERT], {name: texts[name] for name in ("path", "reason")}),
        _build_tool(REPORT, texts[REPORT], {"text": texts["text"]}),
    ]


def read_verdict(
    calls: Iterable[Mapping[str, Any]], placed: PlacedMonitor, paths: Collection[str]
) -> Verdict:
    """Return the verdict in the calls of a reply."""
    alerts, reports, faults = dict[Alert, None](), list[str](), list[str]()
    for call in calls:
        name, value = call.get("name"), call.get("args")
        arguments = value if isinstance(value, Mapping) else {}
        if name == REPORT and (text := _read_words(arguments.get("text"))):
            reports.append(text)
        elif name == ALERT and (reason := _read_words(arguments.get("reason"))):
            path = _find_agent(arguments.get("path"), paths)
            if path is None:
                shown = shorten_words(_quote(sanitize_value(str(arguments.get("path")))), 200)
                listed = shorten_words(", ".join(sorted(paths)))
                why = f"you watch no agent {shown}; the agents below {placed.watched} are {listed}"
                faults.append(why)
            elif len(alerts) < MAX_ALERTS:
                alerts[Alert(placed.path, path, reason)] = None
        else:
            shown = _quote(sanitize_value({"name": str(name), "args": arguments}))
            faults.append(f"{shorten_words(shown)} is neither an alert nor a report")
    return Verdict(tuple(alerts), tuple(reports), tuple(faults[:MAX_ALERTS]))


def shorten_words(text: str, length: int = MAX_EVENT_LENGTH) -> str:
    """Return the beginning of a text, which is marked if it is not the whole."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _find_agent(value: Any, paths: Collection[str]) -> str | None:
    """Return the path of an agent that is named by its path, or by its name if only one has it."""
    if not isinstance(value, str):
        return None
    if value in paths:
        return value
    named = [path for path in paths if path.rpartition(PATH_SEPARATOR)[2] == value]
    return named[0] if len(named) == 1 else None


def _read_words(value: Any) -> str:
    text = join_printable(sanitize_value(value)) if isinstance(value, str) else ""
    return shorten_words(text, MAX_REASON_LENGTH)


def _build_tool(name: str, description: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class MonitorState:
    """How far a monitor has come in a turn."""

    # The last event that it has judged.
    cursor: int = 0
    # Those that a kill has cut short are counted.
    calls: int = 0
    tokens: int = 0
    # How many alerts and reports it has made.
    said: int = 0
    # Its latest verdicts, as it reads them again.
    notes: tuple[str, ...] = ()
    money: str = "0"
    # Why nothing can be said to be left of its budget; empty if something can.
    fault: str = ""


MONITOR: Final = Records[MonitorState]("monitor", MonitorState, raw=1)
"""How far a monitor has come, by the turn and its path."""


class JudgedEvents(NamedTuple):
    """The events that a monitor has read in one call, and its reply."""

    # The last event.
    cursor: int
    reply: AIMessage
    used: CallUsage
    # The root's checkpoint after which it replies.
    after: str
    # That after which it was asked, at which its call is charged.
    asked_after: str = ""


class MonitorLedger:
    """The record of one monitor in one turn."""

    def __init__(
        self,
        ledger: Ledger,
        turn: Turn,
        placed: PlacedMonitor,
        limits: Limits,
        prices: Prices | None = None,
    ) -> None:
        # Its own thread, under which its events are kept.
        self.thread_id = str(uuid5(ECHELONS_NS, f"{turn.thread_id}/monitor/{placed.path}"))
        self._ledger = ledger
        self._turn = turn
        self._placed = placed
        self._prices = prices
        self._name = turn.thread_id, turn.id, placed.path
        self._key = MONITOR.key(*self._name)
        # Its own clock stands still: the run counts the seconds.
        meter = METER.key(turn.thread_id, turn.id)
        self._meter = Meter(meter, limits, lambda: 0.0)

    def begin(self, cursor: int) -> MonitorState:
        """Return how far it has come in the turn; at its beginning, up to an event."""

        def begin(open_: Transaction) -> MonitorState:
            self._turn.check_in(open_)
            return MONITOR.change(open_, lambda old: old or MonitorState(cursor), *self._name)

        return self._ledger.commit(begin)

    def reserve_call(self) -> Halt | Pause | None:
        """Count a model call before it is made; return why it must not be made, or `None`."""

        def reserve(open_: Transaction) -> Callable[[], Halt | Pause | None]:
            self._turn.check_in(open_)
            state = MONITOR.get(open_, *self._name) or MonitorState()
            if held := self._find_order(open_) or self._find_exhausted(state):
                return lambda: held
            MONITOR.put(open_, replace(state, calls=state.calls + 1), *self._name)
            return self._meter.count(open_, Step.MODEL)

        return self._ledger.commit(reserve)()

    def _find_exhausted(self, state: MonitorState) -> Halt | None:
        """Return why nothing is left of its own budget; `None` if something is."""
        budget, prices = self._placed.monitor.budget, self._prices
        if state.fault:
            return Halt("budget", state.fault)
        if budget.money and prices is None:
            return Halt("budget", "no prices are given in this process: Session(prices=...)")
        spent: dict[Unit, Amount] = {
            "calls": state.calls,
            "tokens": state.tokens,
            "money": Decimal(state.money),
        }
        for unit, limit in budget.amounts.items():
            if spent[unit] >= limit:
                whole = format_amount(unit, limit, prices.currency if prices else "")
                return Halt("limit", f"{format_number(spent[unit])} of {whole} of its budget")
        return None

    def _find_order(self, open_: Transaction) -> Halt | Pause | None:
        """Return the dismissal or the order that it is under, or an agent above it."""
        path, thread_id = self._placed.path, self._turn.thread_id
        if dismissal := find_dismissal(open_, thread_id, path, self._turn.hidden_dismissals):
            return Halt("dismissed", dismissal.why)
        return read_orders(open_, thread_id, self._turn.id).find_order(path)

    def store_verdict(
        self, judged: JudgedEvents, verdict: Verdict, decisions: Sequence[AlertDecision]
    ) -> None:
        """Store what it says of some events.

        Raises:
            LeaseLost: Another run has the thread now.
        """
        cursor, reply, used, after, checkpoint_id = judged
        usage = used.usage or {}
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        self._meter.add_tokens(tokens)

        def store(open_: Transaction) -> Callable[[], object]:
            self._turn.check_in(open_)
            state = MONITOR.get(open_, *self._name) or MonitorState()
            self._add_reply(open_, reply, checkpoint_id, state.calls)
            count = state.said
            for alert, decision in zip(verdict.alerts, decisions, strict=True):
                count += 1
                self._store_alert(open_, alert, decision, after, count)
            for text in verdict.reports:
                count += 1
                self._add_event(open_, EventKind.REPORT, {"text": text}, after, count)
            notes = (*state.notes, *verdict.notes)[-MAX_NOTES:]
            new = MonitorState(cursor, state.calls, state.tokens + tokens, count, notes)
            MONITOR.put(open_, self._charge(new, state, used), *self._name)
            return self._meter.count(open_)

        self._ledger.commit(store)()

    def _charge(self, new: MonitorState, before: MonitorState, used: CallUsage) -> MonitorState:
        """Return a state with what a call cost, or why that is not known."""
        budget, prices, money = self._placed.monitor.budget, self._prices, before.money
        if used.fault and (budget.tokens or budget.money):
            return replace(new, money=money, fault=used.fault)
        if not (budget.money and prices and used.usage):
            return replace(new, money=money)
        try:
            cost = prices.compute_cost(used.model, used.usage)
        except ConfigurationError as error:
            return replace(new, money=money, fault=str(error))
        return replace(new, money=format_money(add_money(Decimal(money), cost)))

    def _store_alert(
        self, open_: Transaction, alert: Alert, decision: AlertDecision, after: str, count: int
    ) -> None:
        data = {"about": alert.path, "reason": alert.reason, "decision": decision}
        self._add_event(open_, EventKind.ALERT, data, after, count)
        if decision == "tell":
            self._ask(open_, alert, after, count)
        thread_id, superior = self._turn.thread_id, self._placed.superior
        # An agent that knows of the stop gets no second notice.
        if decision == "ignore" or (decision == "stop" and not self._stop(open_, alert, after)):
            return
        kind: MailKind = "stopped" if decision == "stop" else "alert"
        mail = StoredMail(alert.monitor, alert.reason, open_.now, after, kind, alert.path)
        try:
            check_room(open_, thread_id, superior)
        except ControlError:
            # People see it all the same, and the order is given.
            return
        add_mail(open_, thread_id, superior, mail)

    def _ask(self, open_: Transaction, alert: Alert, after: str, count: int) -> None:
        """Put an alert into the inbox, where an answer to it is a message to the superior."""
        text = AgentQuestion(text=f"alert about {alert.path}: {alert.reason}")
        question = LaterQuestion(
            text.stored(),
            alert.monitor,
            self.thread_id,
            open_.now,
            after,
            False,
            self._placed.superior,
        )
        id_ = uuid5(ECHELONS_NS, f"later/{self._key}/{count}").hex
        LATER.add(open_, question, self._turn.thread_id, id_)

    def _stop(self, open_: Transaction, alert: Alert, after: str) -> bool:
        """Order an agent to stop; return whether it was not stopped yet."""
        orders, path = read_orders(open_, self._turn.thread_id, self._turn.id), alert.path
        if isinstance(orders.find_order(path), Halt):
            return False
        order = GivenOrder("stop", path, alert.monitor, open_.now)
        # With the root's thread, as all orders.
        where = self._locate(path, after, self._turn.thread_id)
        stopped = replace(orders, stopped=(*orders.stopped, path))
        record_order(open_, stopped, order, where, self._turn.id)
        return True

    def _add_reply(self, open_: Transaction, reply: AIMessage, after: str, call: int) -> None:
        """Add a reply as an event, by which its usage is known; what it calls is no tool."""
        stored = reply.model_copy(update={"id": f"{self._key}/call/{call}"})
        event, *_ = build_thread_events([stored], self._placed.monitor.name, self.thread_id)
        where = self._locate(self._placed.path, after, self.thread_id)
        open_.add_event(where, replace(event, data={**event.data, "monitor": True}))

    def _add_event(
        self, open_: Transaction, kind: EventKind, data: dict[str, str], after: str, count: int
    ) -> None:
        event = ThreadEvent(kind, f"{self._key}/{count}", data)
        open_.add_event(self._locate(self._placed.path, after, self.thread_id), event)

    def _locate(self, path: str, after: str, thread_id: str) -> WriteLocation:
        return WriteLocation(self._turn.thread_id, "", after, thread_id, path)
