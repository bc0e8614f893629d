"""`UserAnswer`: what the user was asked by an agent, and has answered, as its superior is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from echelons.errors import UnreadableRecord
from echelons.tree.names import PATH_SEPARATOR

MAX_LENGTH = 500
"""Characters of a question and of an answer that a superior is told."""


class UserAnswer(BaseModel):
    """A question of an agent to the user, past its superior, and the answer.

    Attributes:
        question: The question, shortened.
        answer: The answer, shortened; empty if it is not known.
        path: Agents from the one that reads it down to the one that asked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    answer: str = ""
    path: tuple[str, ...] = ()

    @classmethod
    def shorten(cls, question: str, answer: str) -> Self:
        """Return it with texts that a superior can read quickly."""
        return cls(question=_shorten(question), answer=_shorten(answer))

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def load(cls, stored: object) -> Self:
        """Return it from the JSON of `stored`.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            return cls.model_validate(stored, extra="ignore")
        except ValidationError as error:
            raise UnreadableRecord(cls.__name__, str(error)) from error


def format_user_answers(answers: Iterable[UserAnswer]) -> str:
    """Return what the user was asked as a superior's model reads it.

    Examples:
        >>> told = UserAnswer(question="By day?", answer="yes", path=("a", "b"))
        >>> print(format_user_answers([told]))
        [told to you] b asked the user: "By day?" The answer was: "yes"
    """
    return "\n".join(map(_format_answer, answers))


def _format_answer(told: UserAnswer) -> str:
    who = PATH_SEPARATOR.join(told.path[1:])
    asked = f"[told to you] {who} asked the user: {json.dumps(told.question, ensure_ascii=False)}"
    if not told.answer:
        return asked
    return f"{asked} The answer was: {json.dumps(told.answer, ensure_ascii=False)}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
