"""Questions to people past the superior of an agent, with their answers, for the superior."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Self

from echelons.settings import StoredModel
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR

MAX_LENGTH = 500
"""Characters of a question and of an answer that a superior reads."""
MAX_SHOWN = 20
"""Questions that a superior reads with one result, and that are kept of one call."""
USER_ANSWER_PREFIX = "[told to you] "
"""Start of each line in which an earlier version told a superior of a question and its answer,
beneath the result."""


class UserAnswer(StoredModel):
    """A question to the user past an agent's superior, and the answer.

    The agent has asked it, or its tool, or it was asked about a call of the agent: whether it
    happened, or whether it may run.

    Attributes:
        question: The question, shortened.
        answer: The answer, shortened; empty if it is not known.
        path: Agents from the one that reads it down to the one that it was asked for. One agent
            alone has it for its own superior.
    """

    question: str
    answer: str = ""
    path: AgentPath = AgentPath()

    @classmethod
    def shorten(cls, question: str, answer: str) -> Self:
        """Return it with texts that a superior can read quickly."""
        return cls(question=shorten_user_text(question), answer=shorten_user_text(answer))


def format_user_answers(answers: Iterable[UserAnswer]) -> list[str]:
    """Return what the user was asked as notices for a superior's model.

    Examples:
        >>> asked = UserAnswer(question="By day?", answer="yes", path=("a", "b"))
        >>> format_user_answers([asked])
        ['b asked the user: "By day?" The answer was: "yes"']
    """
    reported = [answer for answer in answers if len(answer.path.parts) > 1]
    lines = [*map(_format_answer, reported[:MAX_SHOWN])]
    if len(reported) > MAX_SHOWN:
        lines.append(f"the user was asked {len(reported) - MAX_SHOWN} times more")
    return lines


def shorten_user_text(text: str) -> str:
    """Return a question or an answer, cut to the length that a superior reads."""
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


def _format_answer(answer: UserAnswer) -> str:
    asker = PATH_SEPARATOR.join(answer.path.parts[1:])
    question = json.dumps(answer.question, ensure_ascii=False)
    line = f"{asker} asked the user: {question}"
    if not answer.answer:
        return line
    return f"{line} The answer was: {json.dumps(answer.answer, ensure_ascii=False)}"
