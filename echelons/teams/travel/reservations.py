"""The tool that asks a human to reserve a table. The restaurants agent has it.

The run pauses at the question and goes on with the answer, in another process if need be.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import ToolException

from echelons.text.stemming import extract_words

YES = frozenset({
    "yes", "y", "yeah", "yep", "yes please", "ok", "okay", "sure", "of course", "true", "done",
    "confirm", "confirmed", "agreed", "approve", "approved", "accept", "accepted", "go ahead",
    "do it", "book it", "please do",
})  # fmt: skip
NO = frozenset({
    "no", "n", "nope", "no thanks", "no thank you", "false", "decline", "declined", "reject",
    "rejected", "deny", "denied", "cancel", "cancelled", "canceled", "never mind", "do not", "dont",
})  # fmt: skip


def reserve_table(restaurant: str, when: str | None = None, people: int = 2) -> str:
    """Ask a human to reserve a table, and wait for the answer.

    Args:
        restaurant: The name of the restaurant.
        when: The day and time, such as "Friday at 8 pm".
        people: How many people will come, 1 or more.

    Returns:
        Whether a human confirmed or declined, or what the human said instead.

    Raises:
        ToolException: The restaurant has no name, or there are fewer than one person.
    """
    # Only those who run graphs pay for LangGraph's import.
    from langgraph.types import interrupt

    if not restaurant.strip():
        raise ToolException("a reservation needs the name of the restaurant; none was given")
    if people < 1:
        raise ToolException(f"a table is for 1 person or more, not for {people}; say how many")
    table = f"a table for {people} at {restaurant.strip()}"
    if when and when.strip():
        table = f"{table}, {when.strip()}"
    question = {
        "question": f"Please reserve {table}. Is it confirmed?",
        "restaurant": restaurant,
        "when": when,
        "people": people,
    }
    return _describe_outcome(table, interrupt(question))


def _describe_outcome(table: str, answer: Any) -> str:
    said = "" if answer is None else str(answer).strip()
    plain = " ".join(extract_words(said))
    if plain in YES:
        return f"Confirmed by a human: {table}."
    if plain in NO:
        return f"Declined by a human: {table} was not reserved."
    if not said:
        return f"The human gave no answer: {table} is not confirmed."
    return f"Not confirmed: asked for {table}, the human answered: {said}"
