"""Composes one answer from the results of subordinates and tools.

`reply_plan` calls it when all calls are answered. Contributions are quoted verbatim with their
sources; everything that is lacking is listed at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from echelons.models.planner.planner_turn import CallAnswer

MAX_REASON_CHARACTERS: Final = 300
"""Characters of a reason that are quoted; an error may have a page of them."""

EMPTY_ANSWER: Final = "empty answer"

_ASKS: Final = " asks: "


def select_contributions(answers: Iterable[CallAnswer]) -> list[CallAnswer]:
    """Return the answers with content, the best first among those to the same question."""
    given = [one for one in answers if one.status in ("fulfilled", "partial") and one.text.strip()]
    questions: dict[str, int] = {}
    for answer in given:
        questions.setdefault(answer.asked, len(questions))

    def rank(one: CallAnswer) -> tuple[int, float]:
        # Only answers to the same question compete; results of tools have none to rank by.
        return questions[one.asked], -(one.confidence or 0.0) if one.delegated else 0.0

    return sorted(given, key=rank)


def describe_failures(answers: Iterable[CallAnswer]) -> str:
    """Return the sources without a result, and why: "events (closed today), tours (no answer)"."""
    return ", ".join(
        f"{one.source} ({_shorten_line(one.reason) or EMPTY_ANSWER})"
        for one in answers
        if one.status == "unable" or (one.status != "needs_input" and not one.text.strip())
    )


def describe_questions(answers: Iterable[CallAnswer]) -> str:
    """Return the open questions of the sources, joined into one line."""
    open_ones = [one for one in answers if one.status == "needs_input"]
    return "; ".join(map(_format_question, open_ones))


def compose_answer(answers: Sequence[CallAnswer]) -> str:
    """Return the answer: each contribution under its source, then what is lacking."""
    given = select_contributions(answers)
    only = len(given) == 1 and not given[0].delegated
    parts = [one.text if only else f"{one.source}:\n{one.text}" for one in given]
    lacking = [
        f"Incomplete: {one.source} ({_shorten_line(one.reason)})"
        for one in given
        if one.status == "partial" and one.reason and one.reason != one.text
    ]
    if open_ones := describe_questions(answers):
        lacking.append(f"Open question: {open_ones}")
    if failed := describe_failures(answers):
        lacking.append(f"Not available: {failed}")
    return "\n\n".join([*parts, *(["\n".join(lacking)] if lacking else [])])


def _format_question(answer: CallAnswer) -> str:
    asked = _shorten_line(answer.reason or answer.text)
    # A question passed up through several levels keeps the source that asked it first.
    return asked if _ASKS in asked else f"{answer.source}{_ASKS}{asked}"


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_CHARACTERS else f"{line[:MAX_REASON_CHARACTERS]}…"
