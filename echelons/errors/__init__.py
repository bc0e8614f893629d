"""Every error that Echelons raises by name: one tree under :class:`EchelonsError`.

Each error keeps its facts in typed fields and builds a message that gives the value, the limit
and the way out, so that a caller can catch by type, a program can read the fields, and a person
can read the text. A family has one file, and all are imported from here::

    EchelonsError
    ├── ConfigurationError    configuration  an agent or a tree that cannot work
    ├── ModelError            models         a model that cannot be used
    ├── InvalidInput          inputs         what a caller gave is refused
    ├── QuestionError         questions      an answer that does not fit what is asked
    ├── ThreadNotFound, …     threads        which thread is meant, what it can do now
    ├── StorageError          storage        a database that cannot be opened, read or written
    ├── LedgerError           ledger         records, and the leases of threads: ThreadBusy
    ├── NoCall, CallContested effects        calls of tools and functions
    ├── DelegationError       delegation     requests that are not passed on
    ├── ControlError          control        stops and pauses that nobody can follow
    ├── CheckpointTampered    tampering      stored rows, seals, values that cannot be stored
    ├── TeamError             teams          naming, loading and trusting a team
    ├── RoutingError          routing        who is meant by a name, a path, a task
    ├── DocumentsError        documents      folders of documents, missing packages
    └── ScriptError           scripts        the scripts of test models
"""

from __future__ import annotations

from echelons.errors.base import EchelonsError
from echelons.errors.configuration import (
    ConfigurationError,
    CyclicTree,
    DuplicateName,
    InnerLimits,
    InvalidCapability,
    InvalidDatabase,
    InvalidExamples,
    InvalidField,
    InvalidModel,
    InvalidName,
    InvalidSubordinate,
    TreeTooDeep,
    UnknownTool,
)
from echelons.errors.control import ControlError, NothingRunning, NotPaused, UnknownPath
from echelons.errors.delegation import (
    CircuitOpen,
    DelegationCycle,
    DelegationError,
    InvalidJoin,
    MisplacedRequest,
    NoCandidate,
    NoCircuit,
    RepeatedBrief,
    TooDeep,
    TooManyFailures,
    TooManyHops,
    TooWide,
)
from echelons.errors.documents import (
    DocumentsError,
    FolderMissing,
    MissingExtra,
    NotAFolder,
    NothingToRead,
)
from echelons.errors.effects import CallContested, NoCall
from echelons.errors.inputs import (
    AnswerWithoutCall,
    ForbiddenRole,
    InputTooDeep,
    InputTooLarge,
    InvalidId,
    InvalidInput,
    InvalidLabel,
    InvalidMessages,
    InvalidNote,
    InvalidTask,
    InvalidText,
    InvalidThread,
    InvalidValue,
)
from echelons.errors.ledger import (
    InvalidLedgerName,
    LeaseLost,
    LedgerDamaged,
    LedgerError,
    NotJson,
    RecordTooLarge,
    ThreadBusy,
)
from echelons.errors.models import (
    InvalidModelAddress,
    ModelCannotCall,
    ModelError,
    ModelKeyMissing,
    UnknownModel,
)
from echelons.errors.questions import (
    AnswerMissing,
    AnswerUnnamed,
    InterventionPending,
    NoQuestionPending,
    NothingAsked,
    QuestionClosed,
    QuestionError,
    QuestionNotNamed,
    UnknownQuestion,
    WrongAnswer,
)
from echelons.errors.routing import (
    DeriverFailed,
    InvalidThreshold,
    MatcherFailed,
    RoutingError,
    UnknownAgent,
)
from echelons.errors.scripts import (
    InvalidScript,
    ScriptError,
    ScriptExhausted,
    ScriptMissing,
)
from echelons.errors.storage import (
    BackupExists,
    DatabaseFolderMissing,
    DatabaseMissing,
    DatabaseTooNew,
    InvalidStrategy,
    StorageError,
    UnknownStrategy,
)
from echelons.errors.tampering import (
    CheckpointTampered,
    InvalidAllowedType,
    InvalidSealKey,
    NotStorable,
    SealKeyMissing,
    UnknownSealKey,
    UnreadableRecord,
)
from echelons.errors.teams import (
    DocumentsNeeded,
    DocumentsNotTaken,
    NotATeam,
    TeamAttributeMissing,
    TeamError,
    TeamNotImported,
    TeamNotRecorded,
    TeamNotTrusted,
    UnknownTeam,
)
from echelons.errors.threads import (
    MissingAgents,
    NothingToResume,
    NothingUnfinished,
    RunFailed,
    ThreadNotFound,
    ThreadNotNamed,
    ThreadTaken,
    TurnReused,
    UnfinishedTurn,
)

__all__ = [
    "AnswerMissing",
    "AnswerUnnamed",
    "AnswerWithoutCall",
    "BackupExists",
    "CallContested",
    "CheckpointTampered",
    "CircuitOpen",
    "ConfigurationError",
    "ControlError",
    "CyclicTree",
    "DatabaseFolderMissing",
    "DatabaseMissing",
    "DatabaseTooNew",
    "DelegationCycle",
    "DelegationError",
    "DeriverFailed",
    "DocumentsError",
    "DocumentsNeeded",
    "DocumentsNotTaken",
    "DuplicateName",
    "EchelonsError",
    "FolderMissing",
    "ForbiddenRole",
    "InnerLimits",
    "InputTooDeep",
    "InputTooLarge",
    "InterventionPending",
    "InvalidAllowedType",
    "InvalidCapability",
    "InvalidDatabase",
    "InvalidExamples",
    "InvalidField",
    "InvalidId",
    "InvalidInput",
    "InvalidJoin",
    "InvalidLabel",
    "InvalidLedgerName",
    "InvalidMessages",
    "InvalidModel",
    "InvalidModelAddress",
    "InvalidName",
    "InvalidNote",
    "InvalidScript",
    "InvalidSealKey",
    "InvalidStrategy",
    "InvalidSubordinate",
    "InvalidTask",
    "InvalidText",
    "InvalidThread",
    "InvalidThreshold",
    "InvalidValue",
    "LeaseLost",
    "LedgerDamaged",
    "LedgerError",
    "MatcherFailed",
    "MisplacedRequest",
    "MissingAgents",
    "MissingExtra",
    "ModelCannotCall",
    "ModelError",
    "ModelKeyMissing",
    "NoCall",
    "NoCandidate",
    "NoCircuit",
    "NoQuestionPending",
    "NotAFolder",
    "NotATeam",
    "NotJson",
    "NotPaused",
    "NotStorable",
    "NothingAsked",
    "NothingRunning",
    "NothingToRead",
    "NothingToResume",
    "NothingUnfinished",
    "QuestionClosed",
    "QuestionError",
    "QuestionNotNamed",
    "RecordTooLarge",
    "RepeatedBrief",
    "RoutingError",
    "RunFailed",
    "ScriptError",
    "ScriptExhausted",
    "ScriptMissing",
    "SealKeyMissing",
    "StorageError",
    "TeamAttributeMissing",
    "TeamError",
    "TeamNotImported",
    "TeamNotRecorded",
    "TeamNotTrusted",
    "ThreadBusy",
    "ThreadNotFound",
    "ThreadNotNamed",
    "ThreadTaken",
    "TooDeep",
    "TooManyFailures",
    "TooManyHops",
    "TooWide",
    "TreeTooDeep",
    "TurnReused",
    "UnfinishedTurn",
    "UnknownAgent",
    "UnknownModel",
    "UnknownPath",
    "UnknownQuestion",
    "UnknownSealKey",
    "UnknownStrategy",
    "UnknownTeam",
    "UnknownTool",
    "UnreadableRecord",
    "WrongAnswer",
]

for _name in __all__:
    # A traceback and a pickle name an error by the address that it is imported from.
    globals()[_name].__module__ = __name__
