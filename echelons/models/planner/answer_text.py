"""Composes one answer from the results of subordinates and tools.

`reply_plan` calls it when all calls are answered. Contributions are quoted verbatim with their
sources; everything that is lacking is listed at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from echelons.models.planner.planner_turn import Answer

LONGEST_REASON: Final = 300
"""Characters of a reason that are quoted; an error may have a page of them."""

WITHOUT_WORDS: Final = "empty answer"

_ASKS: Final = " asks: "


def contributions(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers with content, the best first among those to the same question."""
    given = [one for one in answers if one.status in ("fulfilled", "partial") and one.text.strip()]
    questions: dict[str, int] = {}
    for answer in given:
        questions.setdefault(answer.asked, len(questions))
    return sorted(given, key=lambda one: (questions[one.asked], -_certainty(one)))


def failures(answers: Iterable[Answer]) -> str:
    """Return the sources without a result, and why: "events (closed today), tours (no answer)"."""
    failed = [
        one
        for one in answers
        if one.status == "unable" or (one.status != "needs_input" and not one.text.strip())
    ]
    return ", ".join(f"{one.source} ({_line(one.reason) or WITHOUT_WORDS})" for one in failed)


def questions(answers: Iterable[Answer]) -> str:
    """Return the open questions of the sources, joined into one line."""
    open_ones = [one for one in answers if one.status == "needs_input"]
    return "; ".join(map(_question, open_ones))


def compose(answers: Sequence[Answer]) -> str:
    """Return the answer: each contribution under its source, then what is lacking."""
    given = contributions(answers)
    only = len(given) == 1 and not given[0].delegated
    parts = [one.text if only else f"{one.source}:\n{one.text}" for one in given]
    lacking = [
        f"Incomplete: {one.source} ({_line(one.reason)})"
        for one in given
        if one.status == "partial" and one.reason
    ]
    if open_ones := questions(answers):
        lacking.append(f"Open question: {open_ones}")
    if failed := failures(answers):
        lacking.append(f"Not available: {failed}")
    return "\n\n".join([*parts, *(["\n".join(lacking)] if lacking else [])])


def _certainty(answer: Answer) -> float:
    # Only answers to the same question compete; results of tools have none to rank by.
    return answer.confidence or 0.0 if answer.delegated else 0.0


def _question(answer: Answer) -> str:
    asked = _line(answer.reason or answer.text)
    # A question passed up through several levels keeps the source that asked it first.
    return asked if _ASKS in asked else f"{answer.source}{_ASKS}{asked}"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"
