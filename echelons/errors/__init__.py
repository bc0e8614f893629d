"""Every error that Echelons raises by name: one tree under `EchelonsError`.

Each error keeps its facts in typed fields and builds a message that gives the value, the limit
and the way out, so that a caller can catch by type, a program can read the fields, and a person
can read the text. A family has one file, and all are imported from here::

    EchelonsError
    ├── ConfigurationError    configuration  an agent or a tree that cannot work
    ├── ModelError                           a model that cannot be used
    ├── McpServerFailed                      an MCP server that cannot be used
    ├── InvalidInput          inputs         invalid input of a caller
    ├── QuestionError                        answers that fit no pending question
    ├── ThreadNotFound, …     threads        which thread, and what it can do now
    ├── StorageError          storage        a database that cannot be opened, read or written
    ├── CheckpointTampered                   stored rows, seals, values that cannot be stored
    ├── LedgerError                          records, and the leases of threads: ThreadBusy
    ├── DelegationError       delegation     requests that are not passed on
    ├── RoutingError                         names and paths of agents, matchers, thresholds
    ├── ControlError                         stops, pauses, take-overs that cannot be done
    ├── TeamError             teams          naming, loading and trusting a team
    ├── DocumentsError                       folders of documents, missing packages
    ├── ToolRefusal           tools          what the safe tools refuse
    ├── ScriptError           scripts        the scripts of test models
    └── WorkspaceError        workspace      folders of files, their paths and changes

One class is no error: `ForeignSaverWarning`, of `storage`.
"""

from __future__ import annotations

from echelons.errors.base import *
from echelons.errors.configuration import *
from echelons.errors.delegation import *
from echelons.errors.inputs import *
from echelons.errors.scripts import *
from echelons.errors.storage import *
from echelons.errors.teams import *
from echelons.errors.threads import *
from echelons.errors.tools import *
from echelons.errors.workspace import *

__all__: list[str]

_names = sorted(
    name
    for name, each in globals().items()
    if isinstance(each, type) and issubclass(each, EchelonsError)
)
# Computed, so that a name is written once; type checkers follow the star imports above.
globals()["__all__"] = _names
for _name in _names:
    # A traceback and a pickle name an error by the address that it is imported from.
    globals()[_name].__module__ = __name__
