"""Finds dates and times in natural language; `arguments` uses it for date and time parameters.

Nothing here depends on the current day: "tomorrow" stays "tomorrow", so that the planner's answers
are reproducible. Only a full date can be converted to ISO 8601.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, time
from functools import lru_cache
from typing import Final, Literal

MomentKind = Literal["date", "time"]

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_WEEKDAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_SEASON: Final = r"(?:spring|summer|autumn|fall|winter)"
_YEAR: Final = r"(?:,?\s(?:19|20)\d\d)?"
_TO: Final = r"\s?(?:-|\N{EN DASH}|to|until|till|and)\s?"

_PATTERNS: Final[tuple[tuple[MomentKind, str], ...]] = (
    ("date", r"\d{4}-\d\d-\d\d"),
    ("date", r"\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)"),
    ("date", rf"{_DAY}{_TO}{_DAY}\s(?:of\s)?{_MONTH}{_YEAR}"),
    ("date", rf"{_MONTH}\s{_DAY}{_TO}{_DAY}{_YEAR}"),
    ("date", rf"(?:{_WEEKDAY},?\s)?(?:the\s)?{_DAY}\s(?:of\s)?{_MONTH}{_YEAR}"),
    ("date", rf"(?:{_WEEKDAY},?\s)?{_MONTH}\s(?:the\s)?{_DAY}(?!\d){_YEAR}"),
    ("date", rf"{_MONTH},?\s(?:19|20)\d\d"),
    ("date", r"the day after tomorrow|tomorrow|today|tonight"),
    ("date", rf"(?:(?:next|this|coming)\s)?{_WEEKDAY}"),
    ("date", r"(?:next|this|coming)\s(?:week|weekend|month|year)"),
    ("date", rf"(?:(?:next|this|early|late)\s)?(?:(?<=in\s)|(?<=next\s)|(?<=this\s)){_SEASON}"),
    ("date", rf"(?:early|mid|late|next)[\s-]{_MONTH}"),
    ("date", rf"(?:(?<=in\s)|(?<=of\s)|(?<=during\s)|(?<=this\s)){_MONTH}"),
    ("date", r"(?<=in\s)(?:a|one|two|three|four|five|six|\d{1,2})\s(?:days?|weeks?|months?)"),
    ("date", r"christmas(?:\seve|\sday)?|easter(?:\s(?:sun|mon)day)?|new\syear's(?:\seve|\sday)?"),
    ("date", r"weekend"),
    ("time", r"\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm|a\.m\.|p\.m\.)(?!\w)"),
    ("time", r"\d{1,2}:\d\d(?!\d)"),
    ("time", r"\d{1,2}\so'clock"),
    ("time", r"noon|midnight|(?<=this\s)(?:morning|afternoon|evening)"),
    ("time", r"(?<=in\sthe\s)(?:morning|afternoon|evening)|(?<=tomorrow\s)(?:morning|evening)"),
    ("time", r"(?<=\sat\s)\d{1,2}(?=\s*(?:$|[.,;!?)]|for|on|in|and|to|tomorrow|tonight|please))"),
)
_MOMENT: Final = re.compile(
    r"(?<![\w.:/-])(?:"
    + "|".join(f"(?P<{kind}{i}>{pattern})" for i, (kind, pattern) in enumerate(_PATTERNS))
    + r")(?!\w)",
    re.IGNORECASE,
)
_RANGE: Final = re.compile(rf"({_DAY}){_TO}({_DAY})\s(?:of\s)?({_MONTH}{_YEAR})", re.IGNORECASE)
_RANGE_AFTER: Final = re.compile(rf"({_MONTH})\s({_DAY}){_TO}({_DAY})({_YEAR})", re.IGNORECASE)
_JOINTS: Final = re.compile(r"[\s,]{0,3}(?:(?:at|on|in|the|of|around|by|from|-)\s){0,2}\s?")


@dataclass(frozen=True)
class Moment:
    """A date or a time of day, as a text from `start` to `end` names it."""

    text: str
    kind: MomentKind
    start: int
    end: int


@lru_cache(maxsize=32)
def find_moments(text: str) -> tuple[Moment, ...]:
    """Return all dates and times in `text`, in order; cached within a turn.

    >>> [moment.text for moment in find_moments("On Friday 5 May at 8pm, or tomorrow")]
    ['Friday 5 May', '8pm', 'tomorrow']
    """
    return tuple(
        Moment(found[0], "date" if (found.lastgroup or "").startswith("date") else "time", *span)
        for found in _MOMENT.finditer(text)
        for span in (found.span(),)
    )


def find_when(text: str, kind: MomentKind | None = None) -> str:
    """Return the first date and the first time in `text`, or only that of one kind.

    >>> find_when("a table tomorrow for two at 8pm"), find_when("tomorrow at 8pm", "time")
    ('tomorrow at 8pm', '8pm')
    """
    found = find_moments(text)
    day = next((moment for moment in found if moment.kind == "date"), None)
    hour = next((moment for moment in found if moment.kind == "time"), None)
    if kind or not day or not hour:
        wanted = {"date": day, "time": hour}[kind] if kind else day or hour
        return wanted.text if wanted else ""
    first, second = sorted((day, hour), key=lambda moment: moment.start)
    if _JOINTS.fullmatch(text[first.end : second.start]):
        return text[first.start : second.end]
    return f"{day.text} at {hour.text}"


def find_date_range(text: str) -> tuple[str, str]:
    """Return the first and the last day that `text` names; empty strings for none.

    >>> find_date_range("from 3 to 7 May 2026"), find_date_range("on Friday")
    (('3 May 2026', '7 May 2026'), ('Friday', ''))
    >>> find_date_range("2026-05-03 until 2026-05-07")
    ('2026-05-03', '2026-05-07')
    """
    days = [moment.text for moment in find_moments(text) if moment.kind == "date"]
    if not days:
        return "", ""
    if within := _RANGE.fullmatch(days[0]):
        return f"{within[1]} {within[3]}", f"{within[2]} {within[3]}"
    if within := _RANGE_AFTER.fullmatch(days[0]):
        return f"{within[1]} {within[2]}{within[4]}", f"{within[1]} {within[3]}{within[4]}"
    return days[0], days[1] if len(days) > 1 else ""


def to_iso_date(said: str) -> str:
    """Return `said` as an ISO 8601 date; empty if it is not a full date.

    >>> to_iso_date("5 May 2026"), to_iso_date("May 5th, 2026"), to_iso_date("tomorrow")
    ('2026-05-05', '2026-05-05', '')
    """
    numbers = [int(number) for number in re.findall(r"\d+", said)]
    words = [word[:3] for word in re.findall(r"[a-z]{3,}", said.lower())]
    named = [_MONTHS.index(word) + 1 for word in words if word in _MONTHS]
    if len(numbers) == 2 and named:
        (day, year), month = numbers, named[0]
    elif len(numbers) == 3 and re.match(r"\d{4}-", said):
        year, month, day = numbers
    elif len(numbers) == 3 and numbers[2] > 99:  # day first, the order used in most of the world
        day, month, year = numbers
    else:
        return ""
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return ""


def to_iso_time(said: str) -> str:
    """Return `said` as an ISO 8601 time; empty if it names no hour.

    >>> to_iso_time("8pm"), to_iso_time("20:30"), to_iso_time("noon"), to_iso_time("later")
    ('20:00:00', '20:30:00', '12:00:00', '')
    """
    if said.lower() in ("noon", "midnight"):
        return time(12 if said.lower() == "noon" else 0).isoformat()
    found = re.match(r"(\d{1,2})(?:[:.](\d\d))?\s?([ap])?", said.lower())
    if not found:
        return ""
    hour = int(found[1]) % 12 + (12 if found[3] == "p" else 0) if found[3] else int(found[1])
    try:
        return time(hour, int(found[2] or 0)).isoformat()
    except ValueError:
        return ""
