"""Questions asked on the terminal of a command that runs a turn, and the answers typed there."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from echelons.checkpoints.threads.answer_outbox import accept_answer
from echelons.cli import output
from echelons.cli.output import format_tool_call
from echelons.cli.question_text import format_asker_and_question, list_choices
from echelons.delegation.effects import is_outcome_question
from echelons.delegation.questions import is_human_request
from echelons.errors import EchelonsError, WrongAnswer
from echelons.runtime.session_requests import MISSING

if TYPE_CHECKING:
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.delegation.approvals import ReviewedCall

ReadLine = Callable[[str], str]
"""Shows a prompt, and returns the line that is typed; empty if the question is left open."""

ALWAYS = "always"
"""The word that approves a call for the rest of the thread."""
LEFT_OPEN = "an empty line leaves a question open"


def read_line(prompt: str) -> str:
    """Show a prompt on the standard error, and return the line that is typed.

    Raises:
        EOFError: The input has ended.
    """
    with _open_signal_pipe() as signalled:
        sys.stderr.write(f"{prompt}> ")
        sys.stderr.flush()
        # Windows can wait only for sockets so, and its consoles end a read themselves.
        while os.name != "nt" and sys.stdin not in select.select([sys.stdin, signalled], [], [])[0]:
            os.read(signalled, 4096)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.strip()


@contextmanager
def _open_signal_pipe() -> Iterator[int]:
    """Yield a descriptor that can be read once there was a signal.

    A read is not interrupted by a signal that comes right before it, or to another thread, and
    would hold up its handler until a line is typed.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def ask_questions(questions: Iterable[Question], read: ReadLine = read_line) -> dict[str, Any]:
    """Return the answers that are typed, by question id; none after a Ctrl-C or the input's end."""
    answers: dict[str, Any] = {}
    try:
        for question in questions:
            output.print_remark(f"\n{format_asker_and_question(question)}")
            if (value := ask_question(question, read)) is not MISSING:
                answers[question.id] = value
    except (EOFError, KeyboardInterrupt):
        output.print_remark("")
    return answers


def ask_question(question: Question, read: ReadLine) -> Any:
    """Return the answer to a question, asked until one is accepted; `MISSING` if it is left open.

    An answer is a choice, a text, or JSON if the question's schema is not that of a text; about
    tool calls it is a list of decisions.
    """
    while True:
        try:
            value = _read_value(question, read)
            if value is not MISSING:
                accept_answer(question, value)
        except WrongAnswer as error:
            output.print_remark(error.why)
        except (ValueError, RecursionError) as error:
            output.print_remark(f"this is no JSON: {error}")
        except EchelonsError as error:
            output.print_remark(str(error))
        else:
            return value


def _read_value(question: Question, read: ReadLine) -> Any:
    schema = question.schema
    if question.reviewed_calls:
        return _read_decisions(question.reviewed_calls, read)
    if is_outcome_question(question.value):
        word = read("happened, not_happened or run_again")
        if word == "happened" and (result := read("its result, if it is known")):
            return {"outcome": word, "result": result}
        return word or MISSING
    if not (line := read("")):
        return MISSING
    if choices := list_choices(question.value, schema):
        return {str(choice): choice for choice in choices}.get(line, line)
    is_text = schema is None or schema.get("type") == "string"
    if is_human_request(schema):
        is_text = not line.startswith("{")
    return line if is_text else json.loads(line)


def _read_decisions(calls: Iterable[ReviewedCall], read: ReadLine) -> Any:
    """Return the decisions on some calls; `MISSING` if one is left open."""
    decisions = []
    for call in calls:
        words = [*call.allowed, *([ALWAYS] if call.can_be_standing else [])]
        word = read(f"{format_tool_call(call.tool, call.arguments)}: {', '.join(words)}")
        if not word:
            return MISSING
        decision: dict[str, Any] = {"type": word}
        if word == ALWAYS and call.can_be_standing:
            decision = {"type": "approve", "scope": "thread"}
        elif word == "edit":
            arguments = json.loads(read("its arguments as JSON") or "null")
            decision["edited_action"] = {"name": call.tool, "args": arguments}
        elif word == "reject":
            if reason := read("the reason, if there is one"):
                decision["message"] = reason
        elif word == "respond":
            decision["message"] = read("the answer in place of the tool")
        decisions.append(decision)
    return decisions
