"""Errors of input and of answers to questions; refused before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class InvalidInput(EchelonsError):
    """The input is refused before anything runs; nothing was stored."""


class ContractBroken(InvalidInput):
    """An input or an output is not of the type that the contract of an agent declares.

    Attributes:
        why: What is wrong with it.
    """

    why: str
    message = "{why}"


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
    """A task is empty, or neither a text nor content blocks.

    Attributes:
        task: What was given.
        why: What is wrong with its blocks, and what to do; empty if it has none.
    """

    task: object
    why: str = ""

    def _describe(self) -> str:
        if self.why:
            return f"{SHORT.repr(self.task)} is no task: {self.why}"
        return f"{SHORT.repr(self.task)} is no task; give some words"


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
    """An id, or a name to display, has characters that it may not have, or is too long.

    Attributes:
        what: The kind of id or name.
        id: What was given, shortened.
        allowed: Its form.
    """

    what: str
    id: str
    allowed: str = "1 to 128 of the letters A-Z and a-z, digits, '.', '_', ':' and '-'"
    message = "{id} is no {what}; use {allowed}"


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


class ContextTooLarge(InvalidInput):
    """Instructions, pins and a task do not fit into the budget of a memory by themselves.

    Attributes:
        agent: Path of the agent.
        tokens: Their tokens.
        budget: The budget.
    """

    agent: str
    tokens: int
    budget: int
    message = (
        "the model of {agent!r} would read {tokens} tokens, and the budget of its memory is "
        "{budget}: its instructions, pins and task alone; give Memory(budget=…) more, or a "
        "shorter prompt or task, and resume the turn"
    )


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


class InvalidOption(InvalidInput):
    """Something that a session or a compiled tree should pass to its runs cannot be passed.

    Attributes:
        option: The argument.
        value: What it holds, shortened.
        why: What is wrong with it, and what to do.
    """

    option: str
    value: str
    why: str
    message = "{option}= holds {value}: {why}. Nothing was run"


class QuestionError(EchelonsError):
    """An answer fits no pending question; nothing was changed."""


class UnknownQuestion(QuestionError):
    """An answer names a question that is not pending.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that are.
    """

    id: str
    pending: Sequence[str]
    message = (
        "no question {id:short} is pending (it may be answered already); pending are: {pending}"
    )


class QuestionClosed(UnknownQuestion):
    """An answer names a question that has been answered already, or withdrawn.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that still wait.
    """

    message = (
        "question {id:short} is closed: it was answered already, or withdrawn; this answer changed "
        "nothing. Pending are: {pending}"
    )


class WrongAnswer(QuestionError):
    """An answer does not match the schema of its question, or is no decision on its tool calls.

    Attributes:
        id: The question.
        value: The answer as it was given.
        why: What is wrong with it.
    """

    id: str
    value: object
    why: str
    message = (
        "{value:short} does not answer question {id:short}: {why}. Nothing was changed; see the "
        "question (`echelons inbox --json`)"
    )


class AnswerMissing(QuestionError):
    """A question was named, but no answer was given.

    Attributes:
        id: The question; empty if none was named either.
    """

    id: str = ""

    def _describe(self) -> str:
        to = f"question {SHORT.repr(self.id)} was given no answer"
        return (
            f"{to if self.id else 'no answer was given'}; nothing was changed. "
            "Call answer(id, value), or answer({id: value, …}); a value may be None"
        )


class AnswerUnnamed(QuestionError):
    """A value was given beside answers by id, and no question is named for it.

    Attributes:
        value: The value as it was given.
        named: Ids of the questions that are answered.
    """

    value: object
    named: Sequence[str]
    message = (
        "no question is named for the answer {value:short}, which stands beside answers to "
        "{named:each}; nothing was changed. Call answer(id, value), or answer({{id: value, …}}) "
        "alone"
    )


class NoQuestionPending(QuestionError):
    """An answer was given, but there is no pending question.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = "nothing is asked on thread {thread!r}; send it a task instead"


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot resume without them.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    thread: str
    pending: Sequence[str]
    message = (
        "thread {thread!r} waits for an answer to {pending}; answer first (`echelons inbox`, "
        "`echelons answer`), or use another thread"
    )


class QuestionNotNamed(QuestionError):
    """Several questions are pending, and an answer names none of them.

    Attributes:
        pending: Ids of the questions.
    """

    pending: Sequence[str]

    def _describe(self) -> str:
        return (
            f"{len(self.pending)} questions are pending; name one of "
            f"{', '.join(self.pending)} (`echelons inbox` shows them)"
        )
