"""Starting up: what an import costs, and whether the command's help loads LangGraph.

Each round starts new interpreters; an import is timed inside of one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from tests.benchmarks.measure import Say, Scale
from tests.benchmarks.report import Row, Target

THEIRS = "import langgraph.graph"
SLOWER = 4
"""A round takes about that many times as long as one of the chain."""

Printed = dict[str, float] | None
"""What a program found out; ``None`` if there is nothing yet to be measured."""

IMPORTS = """
import json, time
start = time.process_time()
import langgraph.graph
graph = time.process_time()
import echelons
package = time.process_time()
from echelons import Agent, Session, SqliteCheckpointer
names = time.process_time()
print(json.dumps({"theirs": graph - start, "package": package - graph, "names": names - graph}))
"""
HELP = """
import contextlib, io, json, sys, time
start = time.process_time()
sys.argv = ["echelons", "--help"]
try:
    with contextlib.redirect_stdout(io.StringIO()):
        from echelons.cli.app import main
        main()
except SystemExit:
    pass
except ModuleNotFoundError as missing:
    if missing.name != "echelons.cli.app":
        raise
    sys.exit(print("null"))  # There is no command yet.
spent = time.process_time() - start
loaded = [name for name in sys.modules if name.partition(".")[0] == "langgraph"]
print(json.dumps({"spent": spent, "loaded": len(loaded)}))
"""


def run(scale: Scale, say: Say) -> list[Row]:
    """Start both programs over and over, in turn."""
    imports: list[Printed] = []
    helps: list[Printed] = []
    rounds = scale.fewer(SLOWER)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        imports.append(start(IMPORTS))
        helps.append(start(HELP))
    theirs = _milliseconds(imports, "theirs")
    package, names = _milliseconds(imports, "package"), _milliseconds(imports, "names")
    loaded = helps[0]["loaded"] if helps[0] else None
    work, shown = "import echelons, after langgraph.graph", "echelons --help"
    return [
        Row(work, "CPU ms", package, THEIRS, theirs, Target(0.05)),
        Row(f"{work}, with Agent and Session", "CPU ms", names, THEIRS, theirs),
        Row(shown, "CPU ms", _milliseconds(helps, "spent"), THEIRS, theirs),
        Row(shown, "langgraph modules", loaded, target=Target(0, of="value")),
    ]


def start(program: str) -> Printed:
    """Run a program in a new interpreter and return the JSON that it printed."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    printed: Printed = json.loads(ended.stdout)
    return printed


def _milliseconds(printed: Sequence[Printed], key: str) -> float | None:
    found = [each[key] for each in printed if each]
    return statistics.median(found) * 1e3 if found else None
