"""The prompt of a monitor's model, and the meaning of its reply. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from echelons.features.monitors.placing import PlacedMonitor
from echelons.features.monitors.settings import Alert
from echelons.prompts import build_monitor_guidance, load_monitor_texts
from echelons.text.sanitize import join_printable, sanitize_value
from echelons.tree.names import PATH_SEPARATOR, REPORT

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
