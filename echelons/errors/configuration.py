"""Errors of what a caller hands in: settings, inputs, teams and scripts."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError, escape_braces


class ConfigurationError(EchelonsError):
    """An agent or a tree has an invalid configuration; raised at construction."""


class PermissionsWidened(ConfigurationError, ValueError):
    """An agent may do more than one of its superiors: by a rule, or by what it is granted.

    Attributes:
        agent: Path of the agent, from the superior on.
        superior: The superior.
        name: The tool or subordinate that both rules are for; `tools`, `paths` or `network`; or a
            setting of `Spawn`, such as `spawn.levels`.
        rule: The agent's rule, or what it is granted.
        limit: The superior's.
    """

    code = "permissions_widened"

    def __init__(self, agent: str, superior: str, name: str, rule: str, limit: str) -> None:
        super().__init__(
            "{agent!r} has {rule} for {name!r}, and {superior!r} above it has {limit}; an agent "
            "can only narrow what its superiors allow (of rules 'allow', a predicate, 'ask', "
            "'deny'): leave it out, or make it as strict",
            agent=agent,
            superior=superior,
            name=name,
            rule=rule,
            limit=limit,
        )


class InvalidSetting(ConfigurationError, ValueError):
    """A limit, a policy or another object is made with an invalid value, or an unknown name.

    Attributes:
        owner: The object that was to be made.
        setting: The name of the value.
        value: The refused value.
        why: The fault, and what to give.
    """

    code = "invalid_setting"

    def __init__(self, owner: str, setting: str, value: object, why: str) -> None:
        super().__init__(
            "{owner}({setting}={value:short}): {why}",
            owner=owner,
            setting=setting,
            value=value,
            why=why,
        )


class EventLoopMissing(ConfigurationError):
    """A tree with parts that are only async runs synchronously, and not in a session.

    Attributes:
        parts: These tools and subordinates, with their paths.
    """

    code = "event_loop_missing"

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(
            "these can only run in an event loop, and a synchronous run of a compiled graph has "
            "none: {parts}; run it with ainvoke or astream, or in a Session, which has a loop "
            "for them",
            parts=tuple(parts),
        )


class SessionNeeded(ConfigurationError):
    """A tree with monitors runs outside of a `Session`, which drives them.

    Attributes:
        monitors: Paths of the monitors.
    """

    code = "session_needed"

    def __init__(self, monitors: Sequence[str]) -> None:
        super().__init__(
            "these monitors work beside the turns of a Session alone, and this is a run of a "
            "compiled graph: {monitors}; run the tree in a Session, or leave them out. Nothing "
            "was run",
            monitors=tuple(monitors),
        )


class ModelError(EchelonsError):
    """A model cannot be used as requested."""


class McpServerFailed(EchelonsError):
    """An MCP server cannot be used: it does not start or answer, or lists a tool that has a fault.

    Attributes:
        server: Its name.
        reason: The fault.
    """

    code = "mcp_server_failed"

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(
            "the MCP server {server!r} cannot be used: {reason}",
            server=server,
            reason=reason,
        )


def invalid_name(name: object, why: str = "") -> ConfigurationError:
    """Return the error of a name that is none of an agent or a tool."""
    return ConfigurationError(
        f"{{name!r}} is no valid agent name{' ({why})' if why else ''}; use a letter, then up to "
        "63 letters, digits, '-' or '_', and none of the names of the level's own nodes",
        code="invalid_name",
        name=name,
        why=why,
    )


def duplicate_name(name: str, places: Sequence[str]) -> ConfigurationError:
    """Return the error of a name that is used twice in a tree, or by tools of one agent."""
    return ConfigurationError(
        "the name {name!r} stands more than once ({places}); names are unique in a tree: rename "
        "one of them",
        code="duplicate_name",
        name=name,
        places=tuple(places),
    )


def unknown_tool(agent: str, tool: object, why: str = "") -> ConfigurationError:
    """Return the error of what is no tool, or, with `why`, of a rule for one that is not there."""
    text = (
        "agent {agent!r}: {tool!r} is no tool; pass a LangChain tool, a function with a name and "
        "a docstring, or a dict of a tool that the model's provider runs"
    )
    if why:
        text = "agent {agent!r} has a rule for {tool!r}: {why}"
    return ConfigurationError(text, code="unknown_tool", agent=agent, tool=tool, why=why)


def invalid_subordinate(superior: str, subordinate: object, why: str) -> ConfigurationError:
    """Return the error of what cannot run as a subordinate."""
    place = "agent {superior!r}: " if superior else ""
    return ConfigurationError(
        f"{place}{{subordinate!r}} is no subordinate: {{why}}",
        code="invalid_subordinate",
        superior=superior,
        subordinate=subordinate,
        why=why,
    )


def invalid_field(agent: str, field: str, value: object, expected: str) -> ConfigurationError:
    """Return the error of an invalid value of a field of an agent."""
    return ConfigurationError(
        "agent {agent!r}: {field}={value!r}; pass a value of type {expected}, or leave it out",
        code="invalid_field",
        agent=agent,
        field=field,
        value=value,
        expected=expected,
    )


def middleware_failed(agent: str, middleware: str, hook: str, why: str) -> ConfigurationError:
    """Return the error of a middleware that raised, or did what none can do."""
    return ConfigurationError(
        "{hook} of the middleware {middleware!r} of {agent!r} failed: {why}; mend it, or take it "
        "out, and resume the turn",
        code="middleware_failed",
        agent=agent,
        middleware=middleware,
        hook=hook,
        why=why,
    )


def invalid_tool(agent: str, tool: str, why: str) -> ConfigurationError:
    """Return the error of a tool that cannot be shown to a model."""
    return ConfigurationError(
        "the tool {tool!r} of {agent}: {why}",
        code="invalid_tool",
        agent=agent,
        tool=tool,
        why=why,
    )


def invalid_database(given: object) -> ConfigurationError:
    """Return the error of what is neither a path nor a LangGraph saver."""
    return ConfigurationError(
        "{given!r} is no database; pass a LangGraph saver, the path of a SQLite database, or "
        "':memory:' to keep nothing",
        code="invalid_database",
        given=given,
    )


def model_cannot_call(agent: str, model: str) -> ModelError:
    """Return the error of a model without tool calls for an agent that makes some."""
    return ModelError(
        "agent {agent!r} has tools or subordinates, and its model {model} cannot call any; give "
        "the agent a model with bind_tools, or take its tools and subordinates away",
        code="model_cannot_call",
        agent=agent,
        model=model,
    )


class InvalidInput(EchelonsError):
    """The input is refused before anything runs; nothing was stored."""


class QuestionError(EchelonsError):
    """An answer fits no pending question; nothing was changed."""


class QuestionClosed(QuestionError):
    """An answer names a question that has been answered already, or withdrawn.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that still wait.
    """

    code = "question_closed"

    def __init__(self, id: str, pending: Sequence[str]) -> None:
        super().__init__(
            "question {id:short} is closed: it was answered already, or withdrawn; this answer "
            "changed nothing. Pending are: {pending}",
            id=id,
            pending=tuple(pending),
        )


class WrongAnswer(QuestionError):
    """An answer does not match the schema of its question, or is no decision on its tool calls.

    Attributes:
        id: The question.
        value: The answer as it was given.
        why: The fault.
    """

    code = "wrong_answer"

    def __init__(self, id: str, value: object, why: str) -> None:
        super().__init__(
            "{value:short} does not answer question {id:short}: {why}. Nothing was changed; see "
            "the question (`echelons inbox --json`)",
            id=id,
            value=value,
            why=why,
        )


class NoQuestionPending(QuestionError):
    """An answer was given, but there is no pending question.

    Attributes:
        thread: The thread's name or id.
    """

    code = "no_question_pending"

    def __init__(self, thread: str) -> None:
        super().__init__(
            "nothing is asked on thread {thread!r}; send it a task instead",
            thread=thread,
        )


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot resume without them.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    code = "intervention_pending"

    def __init__(self, thread: str, pending: Sequence[str]) -> None:
        super().__init__(
            "thread {thread!r} waits for an answer to {pending}; answer first (`echelons inbox`, "
            "`echelons answer`), or use another thread",
            thread=thread,
            pending=tuple(pending),
        )


def invalid_thread(thread: object) -> InvalidInput:
    """Return the error of what is no name of a thread."""
    return InvalidInput(
        "{thread:short} is no name of a thread; give some words, 512 characters at most, that can "
        "be printed, or the thread's UUID",
        code="invalid_thread",
        thread=thread,
    )


def invalid_task(task: object, why: str = "") -> InvalidInput:
    """Return the error of a task that is empty, or neither a text nor content blocks."""
    text = "{task!r} is no task: {why}" if why else "{task!r} is no task; give some words"
    return InvalidInput(text, code="invalid_task", task=task, why=why)


def invalid_messages(given: object, why: str) -> InvalidInput:
    """Return the error of what is given as messages, and is none."""
    return InvalidInput(
        "messages={given:short}: {why}; give a text, a message, or a list of messages or of pairs "
        'such as ("user", "Plan a trip"). Nothing was stored',
        code="invalid_messages",
        given=given,
        why=why,
    )


def invalid_id(
    what: str,
    id: str,
    allowed: str = "1 to 128 of the letters A-Z and a-z, digits, '.', '_', ':' and '-'",
) -> InvalidInput:
    """Return the error of an id or a name that has characters it may not have, or too many."""
    return InvalidInput(
        "{id} is no {what}; use {allowed}",
        code="invalid_id",
        what=what,
        id=id,
        allowed=allowed,
    )


def input_too_large(what: str, size: int, limit: int) -> InvalidInput:
    """Return the error of a message, an answer or a whole input that is too large."""
    return InvalidInput(
        "{what} has {size} bytes or more, the limit is {limit}; send it in parts, or store it "
        "elsewhere and send its address",
        code="input_too_large",
        what=what,
        size=size,
        limit=limit,
    )


def invalid_value(what: str, value: str, why: str) -> InvalidInput:
    """Return the error of a value that is not plain data."""
    return InvalidInput(
        "{what} holds {value}, which cannot be taken: {why}; give texts, numbers, true or false, "
        "nothing, and lists and mappings of these",
        code="invalid_value",
        what=what,
        value=value,
        why=why,
    )


def invalid_note(key: str, why: str) -> InvalidInput:
    """Return the error of an entry of a session's metadata that cannot be stored."""
    return InvalidInput(
        "metadata {key} cannot be noted: {why}; give texts, numbers, true or false, under keys of "
        "letters, digits, '.', '_', ':' and '-'",
        code="invalid_note",
        key=key,
        why=why,
    )


def invalid_option(option: str, value: str, why: str) -> InvalidInput:
    """Return the error of what cannot be passed to the runs of a session or a tree."""
    return InvalidInput(
        "{option}= holds {value}: {why}. Nothing was run",
        code="invalid_option",
        option=option,
        value=value,
        why=why,
    )


def unknown_question(id: str, pending: Sequence[str]) -> QuestionError:
    """Return the error of an answer to a question that is not pending."""
    return QuestionError(
        "no question {id:short} is pending (it may be answered already); pending are: {pending}",
        code="unknown_question",
        id=id,
        pending=tuple(pending),
    )


def invalid_strategy(strategy: str, why: str) -> InvalidInput:
    """Return the error of a strategy of pruning that is unknown, or has an invalid limit."""
    return InvalidInput(
        "{strategy} {why}; nothing was changed", code="invalid_strategy", strategy=strategy, why=why
    )


class TeamError(EchelonsError):
    """A team cannot be loaded."""


class TeamNotTrusted(TeamError):
    """The folder of a team has Python, which is executed only if the caller trusts the folder.

    Attributes:
        folder: The folder as it was given.
        files: The files that would be executed.
    """

    code = "team_not_trusted"

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        shown = escape_braces(", ".join(files[:5]))
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        super().__init__(
            f"the team in {{folder!r}} has Python, which would be executed: {shown}{more}; read "
            "it, and trust the folder with --trust, or Agent.from_folder(..., trusted=True)",
            folder=folder,
            files=tuple(files),
        )


def invalid_team(team: str, why: str) -> TeamError:
    """Return the error of a team that cannot be loaded."""
    return TeamError(
        "team {team!r}: {why}",
        code="invalid_team",
        team=team,
        why=why,
    )


def missing_extra(extra: str, package: str) -> ConfigurationError:
    """Return the error of a package that only an optional extra of Echelons brings."""
    return ConfigurationError(
        "the package {package!r} is not installed; pip install 'echelons[{extra}]'",
        code="missing_extra",
        extra=extra,
        package=package,
    )


class ScriptError(EchelonsError):
    """A script of a test model cannot be followed."""


def invalid_script(found: str, expected: str) -> ScriptError:
    """Return the error of a script, or a step of one, of an invalid type."""
    return ScriptError(
        "a script cannot hold {found}; expected {expected}",
        code="invalid_script",
        found=found,
        expected=expected,
    )


def script_exhausted(agent: str | None, step: int, length: int) -> ScriptError:
    """Return the error of a conversation that is longer than its script."""
    return ScriptError(
        f"the script of {'{agent}' if agent else 'any agent'} has {{length}} steps, and step "
        "{step} (counted from 0) was asked for; add a step, or find out why the agent goes on",
        code="script_exhausted",
        agent=agent,
        step=step,
        length=length,
    )
