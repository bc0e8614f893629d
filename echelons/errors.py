"""Every error that Echelons raises by name.

One tree under :class:`EchelonsError`. Each error keeps its facts in typed fields and
builds a message that gives the value, the limit and the way out, so that a caller can
catch by type, a program can read the fields, and a person can read the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from reprlib import Repr
from typing import Any

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 200
"""How much of a value that was refused is shown."""


class EchelonsError(Exception):
    """The root of all errors of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would make a copy of the message alone, and an error is made of its fields.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[EchelonsError], args: tuple[Any, ...], fields: dict[str, Any]
) -> EchelonsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ModelError(EchelonsError):
    """A model cannot be used as it was asked for."""


class ModelKeyMissing(ModelError):
    """A named model needs a key, and the environment has none.

    Attributes:
        model: The model as it was named, ``"openai:gpt-5-mini"``.
        variable: The environment variable that would hold the key.
    """

    def __init__(self, model: str, variable: str) -> None:
        self.model = model
        self.variable = variable
        super().__init__(
            f"model {model!r} needs a key, and {variable} is not set; "
            f"set {variable}, or leave the model out to use the offline planner"
        )


class UnknownModel(ModelError):
    """A model is named in a way that no provider here understands.

    Attributes:
        model: The name as it was given.
        known: The forms that are understood.
    """

    def __init__(self, model: str, known: Sequence[str]) -> None:
        self.model = model
        self.known = tuple(known)
        super().__init__(
            f"unknown model {model!r}; known forms are {', '.join(self.known)}, "
            "or pass any LangChain chat model object"
        )


class ModelCannotCall(ModelError):
    """A model without tool calls belongs to an agent with tools or subordinates.

    Attributes:
        agent: The agent.
        model: The model's class.
    """

    def __init__(self, agent: str, model: str) -> None:
        self.agent = agent
        self.model = model
        super().__init__(
            f"agent {agent!r} has tools or subordinates, and its model {model} cannot call any; "
            "give the agent a model with bind_tools, or take its tools and subordinates away"
        )


class ConfigurationError(EchelonsError):
    """An agent or a tree is described in a way that cannot work; raised at construction."""


class InvalidName(ConfigurationError):
    """A name that LangGraph or a model provider would not accept as a node or tool name.

    Attributes:
        name: The name as it was given.
    """

    def __init__(self, name: object, why: str = "") -> None:
        self.name = name
        super().__init__(
            f"{name!r} is no valid agent name{why and f' ({why})'}; use a letter, then up to "
            "63 letters, digits, '-' or '_', and none of the names of the level's own nodes"
        )


class DuplicateName(ConfigurationError):
    """Two agents of one tree, or two tools of one agent, have the same name.

    Attributes:
        name: The name that stands twice.
        places: Where it stands, as paths or owners.
    """

    def __init__(self, name: str, places: Sequence[str]) -> None:
        self.name = name
        self.places = tuple(places)
        super().__init__(
            f"the name {name!r} stands more than once ({', '.join(self.places)}); "
            "names are unique in a tree: rename one of them"
        )


class CyclicTree(ConfigurationError):
    """An agent stands below itself.

    Attributes:
        path: The names from the root to the agent's second appearance.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self.path = tuple(path)
        super().__init__(
            f"the tree has a cycle: {' -> '.join(self.path)}; every agent has one superior"
        )


class TreeTooDeep(ConfigurationError):
    """A tree has more levels than its root allows.

    Attributes:
        depth: Levels found, the root counted as 1.
        limit: Levels allowed.
    """

    def __init__(self, depth: int, limit: int) -> None:
        self.depth = depth
        self.limit = limit
        super().__init__(
            f"the tree is {depth} levels deep, the limit is {limit}; flatten it, "
            "or raise the root's Limits(depth=...) up to 32"
        )


class UnknownTool(ConfigurationError):
    """Something in ``tools`` is neither a LangChain tool nor a named function.

    Attributes:
        agent: The agent that was given it.
        tool: What was given.
    """

    def __init__(self, agent: str, tool: object) -> None:
        self.agent = agent
        self.tool = tool
        super().__init__(
            f"agent {agent!r}: {tool!r} is no tool; pass a LangChain tool "
            "or a function with a name and a docstring"
        )


class InvalidCapability(ConfigurationError):
    """A capability is not a non-empty text with a confidence from 0 to 1.

    Attributes:
        agent: The agent that declares it.
        capability: The name as it was given.
        confidence: The value as it was given.
    """

    def __init__(self, agent: str, capability: object, confidence: object) -> None:
        self.agent = agent
        self.capability = capability
        self.confidence = confidence
        super().__init__(
            f"agent {agent!r}: capability {capability!r} with confidence {confidence!r}; "
            "a capability is a non-empty text, its confidence a number from 0 to 1"
        )


class InvalidSubordinate(ConfigurationError):
    """Something in ``subordinates`` cannot be run as one.

    Attributes:
        superior: The agent that was given it.
        subordinate: What was given.
        why: What is wrong with it.
    """

    def __init__(self, superior: str, subordinate: object, why: str) -> None:
        self.superior = superior
        self.subordinate = subordinate
        self.why = why
        super().__init__(f"agent {superior!r}: {subordinate!r} is no subordinate: {why}")


class InvalidModel(ConfigurationError):
    """A model is neither a name nor something that can be called like a chat model.

    Attributes:
        agent: The agent that was given it.
        model: What was given.
    """

    def __init__(self, agent: str, model: object) -> None:
        self.agent = agent
        self.model = model
        super().__init__(
            f"agent {agent!r}: {model!r} is no model; pass a LangChain chat model, a name such "
            "as 'openai:gpt-5-mini', or nothing to inherit the superior's"
        )


class InvalidField(ConfigurationError):
    """A field of an agent holds a value of another kind than it takes.

    Attributes:
        agent: The agent that was given it.
        field: The field's name.
        value: What was given.
        expected: The kind that it takes.
    """

    def __init__(self, agent: str, field: str, value: object, expected: str) -> None:
        self.agent = agent
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(
            f"agent {agent!r}: {field}={value!r}; pass a value of type {expected}, or leave it out"
        )


class UnreadableRecord(EchelonsError):
    """A stored request or response is damaged, or something else than it says.

    Attributes:
        model: What it should have been.
        why: What is wrong with it.
    """

    def __init__(self, model: str, why: str) -> None:
        self.model = model
        self.why = why
        super().__init__(
            f"a stored {model} cannot be read: {why}; "
            "the run that wrote it is still in the checkpoints before it"
        )


class InvalidModelAddress(ModelError):
    """The environment names a model server by something that is no web address.

    Attributes:
        variable: The environment variable that holds the address.
        value: The address as it was found.
    """

    def __init__(self, variable: str, value: str) -> None:
        self.variable = variable
        self.value = value
        super().__init__(
            f"{variable} is {value!r}, which is no address of a model server; "
            "give it as http://HOST:PORT/v1 or https://…, or unset it to use OpenAI's own"
        )


class ScriptError(EchelonsError):
    """A script of a test model cannot be followed."""


class InvalidScript(ScriptError):
    """A script, or a step of one, is of a kind that cannot be played.

    Attributes:
        found: What was found, described.
        expected: What may stand there.
    """

    def __init__(self, found: str, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(f"a script cannot hold {found}; expected {expected}")


class ScriptMissing(ScriptError):
    """An agent called a scripted model that has no script for it.

    Attributes:
        agent: The calling agent, or None where the call named none.
        known: The agents that have a script.
    """

    def __init__(self, agent: str | None, known: Sequence[str]) -> None:
        self.agent = agent
        self.known = tuple(known)
        caller = "a caller without a name" if agent is None else f"agent {agent!r}"
        super().__init__(
            f"no script for {caller}; scripts exist for {', '.join(self.known) or 'nobody'}; "
            'add one under its name, or one for any agent under "*"'
        )


class ScriptExhausted(ScriptError):
    """A conversation went on longer than its script.

    Attributes:
        agent: The calling agent, or None where the call named none.
        step: The step that was asked for, counted from 0.
        length: How many steps the script has.
    """

    def __init__(self, agent: str | None, step: int, length: int) -> None:
        self.agent = agent
        self.step = step
        self.length = length
        super().__init__(
            f"the script of {agent or 'any agent'} has {length} steps, and step {step} "
            "(counted from 0) was asked for; add a step, or find out why the agent goes on"
        )


class DocumentsError(EchelonsError):
    """A folder of documents cannot be made into a team."""


class FolderMissing(DocumentsError):
    """There is nothing where the documents should be.

    Attributes:
        folder: The path as it was given.
    """

    def __init__(self, folder: object) -> None:
        self.folder = folder
        super().__init__(f"there is no folder {str(folder)!r}; check the path of the documents")


class NotAFolder(DocumentsError):
    """A team of documents is made of a folder, and this is a file.

    Attributes:
        path: The path as it was given.
        folder: The folder that the file lies in.
    """

    def __init__(self, path: object, folder: object) -> None:
        self.path = path
        self.folder = folder
        super().__init__(
            f"{str(path)!r} is a file, not a folder; pass the folder that it lies in, "
            f"{str(folder)!r}, or put it into a folder of its own"
        )


class NothingToRead(DocumentsError):
    """A folder holds no document that could be read.

    Attributes:
        folder: The folder.
        skipped: What was found and left out, as pairs of path and reason.
    """

    def __init__(self, folder: object, skipped: Sequence[tuple[str, str]]) -> None:
        self.folder = folder
        self.skipped = tuple(skipped)
        shown = "; ".join(f"{path} ({reason})" for path, reason in self.skipped[:5])
        rest = len(self.skipped) - 5
        found = f"skipped: {shown}{f' and {rest} more' if rest > 0 else ''}" if shown else "empty"
        super().__init__(
            f"no readable document in {str(folder)!r} ({found}); put text files into it, "
            "Markdown for example"
        )


class MissingExtra(EchelonsError):
    """Something needs a package that only an optional extra of Echelons brings.

    Attributes:
        extra: The extra, ``"travel"``.
        package: The package that is missing.
    """

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(
            f"the package {package!r} is not installed; pip install 'echelons[{extra}]'"
        )


class StorageError(EchelonsError):
    """The database cannot be opened, read or written.

    Attributes:
        path: The database.
        why: What SQLite or the system said.
    """

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(
            f"database {path!r}: {why}; what was committed before is safe. "
            "Check the path, its permissions and the disk, or name another database"
        )


class DatabaseMissing(StorageError):
    """There is no database where threads should be read from; none is made for that.

    Attributes:
        path: The database.
        why: What is wrong.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = "there is no such file"
        EchelonsError.__init__(
            self,
            f"there is no database {path!r}; `echelons run` makes one, "
            "or name the one that you mean with --db or ECHELONS_DB",
        )


class DatabaseFolderMissing(StorageError):
    """A database is named in a folder that is not there.

    Attributes:
        path: The database.
        why: What is wrong.
        folder: The folder.
    """

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.why = f"there is no folder {folder!r}"
        self.folder = folder
        EchelonsError.__init__(
            self,
            f"database {path!r}: {self.why}; make the folder, or name another database",
        )


class MissingAgents(EchelonsError):
    """A stored run waits in agents or nodes that the tree does not have any more.

    Attributes:
        thread_id: The root's thread.
        missing: What is missing, as paths.
    """

    def __init__(self, thread_id: str, missing: Sequence[str]) -> None:
        self.thread_id = thread_id
        self.missing = tuple(missing)
        super().__init__(
            f"thread {thread_id!r} waits in {', '.join(self.missing)}, which this tree does not "
            "have; resume it with the tree that started it, or start another thread. "
            "Nothing was changed"
        )


class ThreadNotFound(EchelonsError):
    """There is no thread of that id or name in the database.

    Attributes:
        thread: The id or name as it was given.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"there is no thread {thread!r} in this database; "
            "list them with `echelons threads` or ThreadStore.roots()"
        )


class QuestionError(EchelonsError):
    """An answer does not fit what is asked; nothing was changed."""


class UnknownQuestion(QuestionError):
    """An answer names a question that is not pending.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that are.
    """

    def __init__(self, id: str, pending: Sequence[str]) -> None:
        self.id = id
        self.pending = tuple(pending)
        super().__init__(
            f"no question {_SHORT.repr(id)} is pending (it may be answered already); "
            f"pending are: {', '.join(self.pending) or 'none'}"
        )


class NoQuestionPending(QuestionError):
    """An answer was given, and nobody asked.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"nothing is asked on thread {thread!r}; send it a task instead")


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot simply go on.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    def __init__(self, thread: str, pending: Sequence[str]) -> None:
        self.thread = thread
        self.pending = tuple(pending)
        super().__init__(
            f"thread {thread!r} waits for an answer to {', '.join(self.pending)}; "
            "answer first (`echelons inbox`, `echelons answer`), or use another thread"
        )


class UnfinishedTurn(EchelonsError):
    """The thread's last turn was cut short, so it takes no new task yet.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"the last turn of thread {thread!r} is not finished; go on with it first "
            "(`echelons resume`, Session.resume()), or use another thread"
        )


class NothingToResume(EchelonsError):
    """The thread has no turn to go on with.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"thread {thread!r} has nothing to resume; send it a task")


class InvalidDatabase(ConfigurationError, TypeError):
    """Something is given as a database that is neither a path nor a LangGraph saver.

    Attributes:
        given: What was given.
    """

    def __init__(self, given: object) -> None:
        self.given = given
        super().__init__(
            f"{given!r} is no database; pass a LangGraph saver, the path of a SQLite database, "
            "or ':memory:' to keep nothing"
        )


class InvalidInput(EchelonsError):
    """What a caller gave is refused before anything runs; nothing was stored."""


class InvalidThread(InvalidInput):
    """A thread's name is no text, or nothing can be called so.

    Attributes:
        thread: What was given.
    """

    def __init__(self, thread: object) -> None:
        self.thread = thread
        super().__init__(
            f"{_SHORT.repr(thread)} is no name of a thread; give some words, 512 characters at "
            "most, that can be printed, or the thread's UUID"
        )


class InvalidTask(InvalidInput):
    """A task is empty or no text.

    Attributes:
        task: What was given.
    """

    def __init__(self, task: object) -> None:
        self.task = task
        super().__init__(f"{task!r} is no task; give some words")


class InvalidMessages(InvalidInput):
    """A run or an update is given something else than messages under ``messages``.

    Attributes:
        given: What was given.
        why: What LangChain says of it.
    """

    def __init__(self, given: object, why: str) -> None:
        self.given = given
        self.why = why
        super().__init__(
            f"messages={_SHORT.repr(given)}: {why}; give a text, a message, or a list of messages "
            'or of pairs such as ("user", "Plan a trip"). Nothing was stored'
        )


class ThreadTaken(EchelonsError):
    """A thread was to be copied to an id that has something stored under it.

    Attributes:
        thread_id: LangGraph's id of the thread that is there.
    """

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"thread {thread_id!r} is there already; copy to another id, or delete it first. "
            "Nothing was changed"
        )


class UnknownStrategy(EchelonsError):
    """Threads were to be pruned in a way that there is not.

    Attributes:
        strategy: The strategy as it was given.
        known: The strategies that there are.
    """

    def __init__(self, strategy: str, known: Sequence[str]) -> None:
        self.strategy = strategy
        self.known = tuple(known)
        super().__init__(
            f"there is no strategy {strategy!r}; use one of {', '.join(self.known)}. "
            "Nothing was changed"
        )


class RunFailed(EchelonsError):
    """A turn stopped at an error of a model or of a function, and can go on.

    Attributes:
        thread: The thread's name or id.
        reason: What went wrong, in a line.
    """

    def __init__(self, thread: str, reason: str) -> None:
        self.thread = thread
        self.reason = reason
        super().__init__(
            f"the turn of thread {thread!r} stopped at {reason}; all that was done before is "
            "stored, and `echelons resume` goes on from there"
        )


class TeamError(EchelonsError):
    """A team cannot be loaded."""


class UnknownTeam(TeamError):
    """No team of that name is shipped.

    Attributes:
        team: The name as it was given.
        known: The names that there are.
    """

    def __init__(self, team: str, known: Sequence[str]) -> None:
        self.team = team
        self.known = tuple(known)
        close = get_close_matches(team, self.known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        super().__init__(
            f"there is no team {team!r}; {meant}teams are {', '.join(self.known)}, "
            "and an agent of your own is named module:agent"
        )


class TeamNotImported(TeamError):
    """An agent is named as ``module:agent``, and loading it failed.

    Attributes:
        team: The name as it was given.
        why: What went wrong.
    """

    def __init__(self, team: str, why: str) -> None:
        self.team = team
        self.why = why
        super().__init__(
            f"team {team!r} cannot be loaded: {why}; write it as module:agent, the module as "
            "Python imports it from this folder"
        )


class TeamAttributeMissing(TeamError):
    """A module has no such agent.

    Attributes:
        team: The name as it was given.
        attribute: What the module does not have.
        offered: Names of the module that may be meant.
    """

    def __init__(self, team: str, attribute: str, offered: Sequence[str]) -> None:
        self.team = team
        self.attribute = attribute
        self.offered = tuple(offered)
        has = f"it has {', '.join(self.offered)}" if self.offered else "it has no agents"
        super().__init__(f"team {team!r}: the module has no {attribute!r}; {has}")


class NotATeam(TeamError):
    """What a team's name leads to is no agent.

    Attributes:
        team: The name as it was given.
        found: What was found, described.
    """

    def __init__(self, team: str, found: str) -> None:
        self.team = team
        self.found = found
        super().__init__(
            f"team {team!r} is {found}; name an Agent, or a function without parameters that "
            "returns one"
        )


class TeamNotTrusted(TeamError):
    """A database names a function as its team that does not say that it makes one.

    Attributes:
        team: The name as it was stored.
    """

    def __init__(self, team: str) -> None:
        self.team = team
        super().__init__(
            f"the database names {team!r} as the team; a function that only a database names is "
            "not called unless it is annotated `-> Agent`: annotate it, "
            f"or name it yourself with --team {team}"
        )


class TeamNotRecorded(TeamError):
    """A thread does not say which team it belongs to.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"thread {thread!r} does not say which team it belongs to (`echelons run` notes it); "
            "name it with --team TEAM"
        )


class DocumentsNeeded(TeamError):
    """A team answers from documents, and none were named.

    Attributes:
        team: The team.
    """

    def __init__(self, team: str) -> None:
        self.team = team
        super().__init__(
            f"team {team!r} answers from documents; name their folder with --docs FOLDER"
        )


class DocumentsNotTaken(TeamError):
    """Documents were named for a team that takes none.

    Attributes:
        team: The team.
        folder: The folder that was named.
    """

    def __init__(self, team: str, folder: str) -> None:
        self.team = team
        self.folder = folder
        super().__init__(
            f"team {team!r} takes no documents, and --docs names {folder!r}; leave it out"
        )


class QuestionNotNamed(QuestionError):
    """Several questions are pending, and an answer does not say to which it belongs.

    Attributes:
        pending: Ids of the questions.
    """

    def __init__(self, pending: Sequence[str]) -> None:
        self.pending = tuple(pending)
        super().__init__(
            f"{len(self.pending)} questions are pending; name one of "
            f"{', '.join(self.pending)} (`echelons inbox` shows them)"
        )


class NothingAsked(QuestionError):
    """An answer was given, and no thread of the database asks anything.

    Attributes:
        database: The database.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        super().__init__(f"no thread in {database!r} asks anything; `echelons threads` lists them")


class NothingUnfinished(EchelonsError):
    """No thread of a database has a turn to go on with.

    Attributes:
        database: The database.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        super().__init__(
            f"no thread in {database!r} is unfinished; `echelons run` begins a turn, "
            "`echelons inbox` shows what waits for an answer"
        )


class ThreadNotNamed(EchelonsError):
    """Several threads may be meant, and none was named.

    Attributes:
        known: Their names or ids.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        super().__init__(
            f"several threads may be meant: {', '.join(self.known)}; name one with --thread"
        )


class DatabaseTooNew(StorageError):
    """A newer version of Echelons has brought the database up to date; it was not touched.

    Attributes:
        path: The database.
        why: What is wrong.
        found: The step that its schema has come to.
        known: The last step that this version knows.
    """

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        self.why = f"its schema is at step {found}, and this version knows steps up to {known}"
        EchelonsError.__init__(
            self,
            f"database {path!r} is of a newer version of Echelons: {self.why}; "
            "update Echelons, or name another database. Nothing was changed",
        )


class ThreadBusy(EchelonsError):
    """Another run holds the thread, so this one changed nothing.

    Attributes:
        thread: The thread, as its lease is named.
        pid: The process that holds it, on the machine of the database.
        since: When it took it, ISO 8601, UTC.
    """

    def __init__(self, thread: str, pid: int, since: str) -> None:
        self.thread = thread
        self.pid = pid
        self.since = since
        super().__init__(
            f"thread {thread!r} is at work in process {pid} since {since}; wait for it, use "
            "another thread, or end that process: its death frees the thread at once"
        )


class LeaseLost(EchelonsError):
    """A run lost its thread to another while it stood still, so its write was refused.

    Attributes:
        thread: The thread, as its lease is named.
        epoch: The epoch in which this run held it.
        current: The epoch now; 0 if the database knows of no holder.
    """

    def __init__(self, thread: str, epoch: int, current: int) -> None:
        self.thread = thread
        self.epoch = epoch
        self.current = current
        super().__init__(
            f"thread {thread!r} was taken over: this run held it in epoch {epoch}, and now is "
            f"epoch {current}; nothing of this write was stored. Read the thread again, and "
            "resume it if nobody else does"
        )


class LedgerError(EchelonsError):
    """The ledger was given, or holds, something that it cannot keep."""


class InvalidLedgerName(LedgerError):
    """A stream, a key or a lease has a name that not every store could keep.

    Attributes:
        name: The name as it was given, shortened.
        why: What is wrong with it.
    """

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"{name!r} is no name for the ledger: {why}; nothing was changed")


class NotJson(LedgerError):
    """A record or value would not be read back as it was given.

    Attributes:
        where: The stream or key that it was meant for.
        why: What is wrong with it.
    """

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(
            f"what was given for {where!r} is no JSON: {why}; give null, booleans, finite "
            "numbers, texts, lists, and objects with text keys. Nothing was changed"
        )


class RecordTooLarge(LedgerError):
    """A record or value is larger than the ledger keeps.

    Attributes:
        where: The stream or key that it was meant for.
        size: Its size as JSON, in bytes of UTF-8.
        limit: The largest size.
    """

    def __init__(self, where: str, size: int, limit: int) -> None:
        self.where = where
        self.size = size
        self.limit = limit
        super().__init__(
            f"what was given for {where!r} has {size} bytes as JSON, and the limit is {limit}; "
            "store it elsewhere and keep its address here. Nothing was changed"
        )


class LedgerDamaged(LedgerError):
    """Something stored in the ledger is no JSON any more.

    Attributes:
        where: The stream or key that it stands under.
        why: What is wrong with it.
    """

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(
            f"what the ledger holds under {where!r} cannot be read: {why}; "
            "something other than Echelons has changed the database: restore a backup of it"
        )


class CheckpointTampered(EchelonsError):
    """A stored row is damaged, stands in another place, or was written by something else.

    Attributes:
        where: The row.
        why: What is wrong with it.
    """

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(
            f"{where} is not what was stored: {why}. Nothing of it was used, and other threads "
            "can be read. Restore a backup of the database, or delete the thread"
        )


class UnknownSealKey(CheckpointTampered):
    """A row was sealed with another key than those that were given.

    Attributes:
        where: The row.
        why: What is wrong with it.
        key: Id of the key that sealed it.
        known: Ids of the keys that were given.
    """

    def __init__(self, where: str, key: str, known: Sequence[str]) -> None:
        self.where = where
        self.key = key
        self.known = tuple(known)
        self.why = f"it is sealed with key {key}"
        EchelonsError.__init__(
            self,
            f"{where} is sealed with key {key}, and the keys given are {', '.join(self.known)}; "
            "add that key to seal=[...], behind the one that is to sign",
        )


class InvalidSealKey(ConfigurationError):
    """A key for the seal is no bytes, or too short to be safe.

    Attributes:
        found: What was given, described without the key itself.
        shortest: Bytes that a key has at least.
    """

    def __init__(self, found: str, shortest: int) -> None:
        self.found = found
        self.shortest = shortest
        super().__init__(
            f"{found} cannot seal a database; give bytes, {shortest} or more, best 32 from "
            "secrets.token_bytes(32), and keep them out of the database's folder"
        )


class SealKeyMissing(EchelonsError):
    """A sealed database was opened without a key, and something was to be written.

    Attributes:
        path: The database.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"database {path!r} is sealed, and no key was given; it can be read like this, but "
            "rows without a seal would be refused later. Open it with "
            "SqliteCheckpointer(path, seal=key). Nothing was changed"
        )


class NotStorable(EchelonsError):
    """A value was to be stored that could not be read back; it is refused, not lost later.

    Attributes:
        kind: The type of the value.
        why: What is wrong with it, and what can be done.
    """

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(f"a value of type {kind} cannot be stored: {why}. Nothing was stored")


class InvalidAllowedType(ConfigurationError):
    """Something in ``allowed_types`` cannot be written and made again.

    Attributes:
        kind: What was given.
        why: What is wrong with it.
    """

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(
            f"{kind} cannot be in allowed_types: {why}; name pydantic models, dataclasses, "
            "named tuples and enumerations, each under a name of its own"
        )


class InvalidId(InvalidInput):
    """An id has characters that ids do not have, or is too long.

    Attributes:
        what: What it is the id of.
        id: The id as it was given, shortened.
        longest: Characters that an id may have.
    """

    def __init__(self, what: str, id: str, longest: int) -> None:
        self.what = what
        self.id = id
        self.longest = longest
        super().__init__(
            f"{id} is no {what}; use 1 to {longest} of the letters A-Z and a-z, digits, "
            "'.', '_', ':' and '-'"
        )


class InvalidLabel(InvalidInput):
    """The sender of a message is called by something that cannot be shown as a name.

    Attributes:
        what: What it is the name of.
        label: The name as it was given, shortened.
        longest: Characters that a name may have.
    """

    def __init__(self, what: str, label: str, longest: int) -> None:
        self.what = what
        self.label = label
        self.longest = longest
        super().__init__(
            f"{label} is no {what}; use 1 to {longest} characters that can be printed, spaces in "
            "between included, and none at the ends"
        )


class InvalidText(InvalidInput):
    """A text holds characters that cannot be stored.

    Attributes:
        what: Where it stands.
        text: The place in the text, shortened.
        why: What is wrong with it.
    """

    def __init__(self, what: str, text: str, why: str) -> None:
        self.what = what
        self.text = text
        self.why = why
        super().__init__(f"{what}, {text}, holds {why}; take it out, or send the text as UTF-8")


class InputTooLarge(InvalidInput):
    """A message, an answer or a whole input is too large.

    Attributes:
        what: What is too large.
        size: Its size as far as it was counted, in bytes of UTF-8.
        limit: The largest size, in bytes.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(
            f"{what} has {size} bytes or more, the limit is {limit}; send it in parts, or store "
            "it elsewhere and send its address"
        )


class InputTooDeep(InvalidInput):
    """A message or an answer holds lists in lists, or mappings in mappings, too deep.

    Attributes:
        what: What is too deep.
        limit: The deepest that it may be.
    """

    def __init__(self, what: str, limit: int) -> None:
        self.what = what
        self.limit = limit
        super().__init__(
            f"{what} is nested more than {limit} deep, or holds itself; flatten it, "
            "or send it as text"
        )


class ForbiddenRole(InvalidInput):
    """An input holds a message that only the library itself may write.

    Attributes:
        what: Which of the input's messages.
        role: Its role.
        allowed: Roles that an input may have.
    """

    def __init__(self, what: str, role: str, allowed: Sequence[str]) -> None:
        self.what = what
        self.role = role
        self.allowed = tuple(allowed)
        super().__init__(
            f"{what} has the role {role!r}; an input may hold {', '.join(self.allowed)}. "
            "Instructions belong in Agent(prompt=...), and a history is changed with update_state"
        )


class AnswerWithoutCall(InvalidInput):
    """An input holds a tool's answer to a call that the same input does not hold.

    Attributes:
        what: Which of the input's messages.
        call: Id of the call, shortened.
    """

    def __init__(self, what: str, call: str) -> None:
        self.what = what
        self.call = call
        super().__init__(
            f"{what} answers the call {call}, which stands in no message before it; "
            "send the message of the call too, or leave the answer out"
        )


class InvalidValue(InvalidInput):
    """A message or an answer to a question holds something that is no plain data.

    Attributes:
        what: Where it stands.
        value: What was given, shortened.
        why: What is wrong with it.
    """

    def __init__(self, what: str, value: str, why: str) -> None:
        self.what = what
        self.value = value
        self.why = why
        super().__init__(
            f"{what} holds {value}, which cannot be taken: {why}; give texts, numbers, true or "
            "false, nothing, and lists and mappings of these"
        )


class InvalidNote(InvalidInput):
    """Something that a session was to note with its thread cannot be noted.

    Attributes:
        key: The key as it was given, shortened.
        why: What is wrong with it.
    """

    def __init__(self, key: str, why: str) -> None:
        self.key = key
        self.why = why
        super().__init__(
            f"metadata {key} cannot be noted: {why}; give texts, numbers, true or false, under "
            "keys of letters, digits, '.', '_', ':' and '-'"
        )
