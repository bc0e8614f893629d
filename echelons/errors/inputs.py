"""Errors of the input of a run, refused before anything is stored.

Raised at the boundary: tasks, messages, answers, ids, names and notes.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class InvalidInput(EchelonsError):
    """The input is refused before anything runs; nothing was stored."""


class InvalidThread(InvalidInput):
    """A thread's name is not a text, or not a valid name.

    Attributes:
        thread: What was given.
    """

    thread: object
    message = (
        "{thread:short} is no name of a thread; give some words, 512 characters at most, that can "
        "be printed, or the thread's UUID"
    )


class InvalidTask(InvalidInput):
    """A task is empty or not a text.

    Attributes:
        task: What was given.
    """

    task: object
    message = "{task!r} is no task; give some words"


class InvalidMessages(InvalidInput):
    """A run or an update has something other than messages under `messages`.

    Attributes:
        given: What was given.
        why: LangChain's explanation.
    """

    given: object
    why: str
    message = (
        "messages={given:short}: {why}; give a text, a message, or a list of messages or of pairs "
        'such as ("user", "Plan a trip"). Nothing was stored'
    )


class InvalidId(InvalidInput):
    """An id has characters that ids do not have, or is too long.

    Attributes:
        what: The kind of id.
        id: The id as it was given, shortened.
        longest: Characters that an id may have.
    """

    what: str
    id: str
    longest: int
    message = (
        "{id} is no {what}; use 1 to {longest} of the letters A-Z and a-z, digits, '.', '_', ':' "
        "and '-'"
    )


class InvalidLabel(InvalidInput):
    """The name of a message's sender cannot be displayed.

    Attributes:
        what: The kind of name.
        label: The name as it was given, shortened.
        longest: Characters that a name may have.
    """

    what: str
    label: str
    longest: int
    message = (
        "{label} is no {what}; use 1 to {longest} characters that can be printed, spaces in "
        "between included, and none at the ends"
    )


class InvalidText(InvalidInput):
    """A text holds characters that cannot be stored.

    Attributes:
        what: Where it is.
        text: The place in the text, shortened.
        why: What is wrong with it.
    """

    what: str
    text: str
    why: str
    message = "{what}, {text}, holds {why}; take it out, or send the text as UTF-8"


class InputTooLarge(InvalidInput):
    """A message, an answer or a whole input is too large.

    Attributes:
        what: What is too large.
        size: Its size as far as it was counted, in bytes of UTF-8.
        limit: The largest size, in bytes.
    """

    what: str
    size: int
    limit: int
    message = (
        "{what} has {size} bytes or more, the limit is {limit}; send it in parts, or store it "
        "elsewhere and send its address"
    )


class InputTooDeep(InvalidInput):
    """A message or an answer holds lists or mappings nested too deep.

    Attributes:
        what: What is too deep.
        limit: The deepest nesting allowed.
    """

    what: str
    limit: int
    message = (
        "{what} is nested more than {limit} deep, or holds itself; flatten it, or send it as text"
    )


class ForbiddenRole(InvalidInput):
    """An input holds a message that only the library itself may write.

    Attributes:
        what: Which of the input's messages.
        role: Its role.
        allowed: Roles that an input may have.
    """

    what: str
    role: str
    allowed: Sequence[str]
    message = (
        "{what} has the role {role!r}; an input may hold {allowed}. Instructions belong in "
        "Agent(prompt=...), and a history is changed with update_state"
    )


class AnswerWithoutCall(InvalidInput):
    """An input holds a tool's answer to a call that the same input does not hold.

    Attributes:
        what: Which of the input's messages.
        call: Id of the call, shortened.
    """

    what: str
    call: str
    message = (
        "{what} answers the call {call}, which stands in no message before it; send the message of "
        "the call too, or leave the answer out"
    )


class InvalidValue(InvalidInput):
    """A message or an answer to a question holds a value that is not plain data.

    Attributes:
        what: Where it is.
        value: What was given, shortened.
        why: What is wrong with it.
    """

    what: str
    value: str
    why: str
    message = (
        "{what} holds {value}, which cannot be taken: {why}; give texts, numbers, true or false, "
        "nothing, and lists and mappings of these"
    )


class InvalidNote(InvalidInput):
    """An entry of a session's metadata cannot be stored.

    Attributes:
        key: The key as it was given, shortened.
        why: What is wrong with it.
    """

    key: str
    why: str
    message = (
        "metadata {key} cannot be noted: {why}; give texts, numbers, true or false, under keys of "
        "letters, digits, '.', '_', ':' and '-'"
    )
