"""Validation of the input of a session: thread names, tasks and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage

from echelons.errors import AnswerMissing, AnswerUnnamed, InvalidId, InvalidTask, InvalidThread
from echelons.runtime.session_requests import AnswerRequest, SendRequest
from echelons.text.input_limits import check_id, check_value, is_label, shorten_repr

MISSING: Any = object()
"""The default of an answer that was not given; `None` is a valid answer."""


def check_thread_name(name: str) -> str:
    """Return the name of a thread, validated.

    Raises:
        InvalidThread: It is empty, too long, not a text, or not printable.
    """
    if not is_label(name):
        raise InvalidThread(name)
    return name


def build_send_request(task: str, turn_id: str | None) -> SendRequest:
    """Return the request to send a task.

    Raises:
        InvalidTask: It is empty.
        InvalidId: `turn_id` has other characters than letters, digits and `._:-`.
    """
    if not isinstance(task, str) or not task.strip():
        raise InvalidTask(task)
    given = {"messages": [HumanMessage(check_value(task, "the task"))]}
    return SendRequest(task, given, None if turn_id is None else check_id(turn_id, "turn_id"))


def build_answer_request(question: str | Mapping[str, Any], value: Any) -> AnswerRequest:
    """Return the request to answer one question, or several by their ids.

    Raises:
        InvalidId: A question's id is not a text.
        AnswerUnnamed: A value is given beside several answers.
        AnswerMissing: No value is given.
    """
    if not isinstance(question, (str, Mapping)):
        raise InvalidId("id of a question", shorten_repr(question))
    given = question if isinstance(question, Mapping) else {question: value}
    for key in given:
        if not isinstance(key, str):
            raise InvalidId("id of a question", shorten_repr(key))
    if isinstance(question, Mapping) and value is not MISSING:
        raise AnswerUnnamed(value, list(given))
    if not given:
        raise AnswerMissing
    for key, each in given.items():
        if each is MISSING:
            raise AnswerMissing(key)
    return AnswerRequest(
        {key: check_value(each, f"the answer to {key!r}") for key, each in given.items()}
    )
