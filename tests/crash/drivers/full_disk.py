"""Merges a change where no file can grow, as on a full disk, and again where there is room.

``python -m tests.crash.drivers.full_disk FOLDER`` prints, as JSON, what both merges have done.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Session
from echelons.errors import ForeignSaverWarning
from echelons.testing import Call, ScriptedModel
from echelons.workspace_tools import file_tools

LONG = "a line of a long file\n" * 20_000


def merge_twice(root: Path) -> dict[str, Any]:
    """Return what the merges have done, and what the file was between them."""
    calls: Any = [
        Call("write_file", {"path": "plan.md", "text": LONG}),
        Call("write_file", {"path": "new.md", "text": "new\n"}),
        "done",
    ]
    agent = Agent("head", model=ScriptedModel(calls), tools=file_tools())
    # No database of ours, which would be full as well.
    with Session(agent, InMemorySaver(), workspace=root) as session:
        session.send("go").result()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
        full = session.merge("head")
        between = (root / "plan.md").read_text()
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        again = session.merge("head")
    return {
        "full": [full.merged, full.left],
        "between": between,
        "again": [again.merged, again.left],
        "long": (root / "plan.md").read_text() == LONG,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore", ForeignSaverWarning)
    print(json.dumps(merge_twice(Path(sys.argv[1]))))
