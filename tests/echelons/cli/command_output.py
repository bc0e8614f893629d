"""Records what every command prints without a terminal, for people and with ``--json``.

``python -m tests.echelons.cli.command_output`` writes the record anew, after a change that is
meant.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from echelons.cli.app import app
from tests.echelons.cli.conftest import TRIPS

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORD = FIXTURES / "command_output.txt"
DATABASES = ("step_13", "budgeted", "dismissed")
COMMANDS = """
run new check profiles inbox answer resume stop dismiss pause steer message repair takeover attach
threads trace tree usage show changes merge discard draw capabilities route serve-mcp breakers prune
delete doctor backup
"""
OFFICE = """
from langgraph.types import interrupt

from echelons import Agent
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools


def confirm(what: str) -> str:
    '''Ask a human.'''
    return str(interrupt({"question": what}))


model = ScriptedModel(
    {
        "head": [delegate("north", "go"), "Done."],
        "north": [
            Call("write_file", {"path": "plan.md", "text": "Bari\\n"}),
            Call("confirm", {"what": "Go on?"}),
            Call("write_file", {"path": "new.md", "text": "new\\n"}),
            "Done.",
        ],
    }
)
agent = Agent("head", model=model, subordinates=[Agent("north", tools=[*file_tools(), confirm])])
"""
PRICES = """
currency = "USD"
[models.scripted]
input = 1.0
output = 2.0
"""
READERS = """
threads
threads --all
inbox
trace
trace --verify --errors
tree
tree --flat
tree --depth 1
usage
usage --subtree
usage --by thread
usage --by day --all
usage --by model
usage --by tree
usage --prices prices.toml
show
repair
breakers
doctor
attach
"""
SCRIPT = """
--help
--version
fly
tread
run travel
profiles
profiles office
check office
check missing
new office
check office
profiles office
run office/ "Add 3 and 4"
run office/ "Add 3 and 4" --trust --thread folder
draw travel
draw travel --mermaid
draw trips:two
draw office
capabilities travel
capabilities travel --all
capabilities trips:seeking
capabilities office
route travel "Plan a trip to Italy with great food"
route travel "See an opera" --at experiences
route trips:seeking "a room"
route trips:seeking "a room" --threshold 1.0
run trips:plain Hello --thread plain
run trips:plain Hello --thread plain --turn one
run trips:plain Hello --thread plain --turn one
run trips:plain Hello -q
run trips:asking "A table" --thread asks
inbox --thread asks
inbox --for anna
answer
answer yes --thread asks --quiet --result x
draw --thread asks
show asks
threads --thread asks
tree --thread asks
trace --thread asks
message head/clerk "Only tables" --thread asks
message head/nobody "Only tables" --thread asks
steer head "Look elsewhere" --thread asks
steer head - --thread asks
pause head/clerk --thread asks --by anna
stop head/nobody --thread asks --by anna
tree --thread asks
resume head/clerk --thread asks --by anna
answer yes --thread asks --by anna
show asks
trace --thread asks --verify
usage --thread asks
takeover asks --yes
run trips:two "Both" --thread two
stop --thread two --by anna
resume --thread two
run trips:unable "A room" --thread unable
trace --thread unable
run trips:seeking "A room" --thread seeking
run trips:limited "A table" --thread limited
answer yes --thread limited
run trips:failing "A table" --thread failing
trace --thread failing
resume --thread failing
repair --thread failing
run trips:escaping "red" --thread red
run trips:counted "Eat" --thread counted --prices prices.toml --budget calls=9
usage --thread counted
usage --thread counted --subtree
usage head/leaf --thread counted
run trips:budgeted "Book" --thread budget
usage --thread budget
tree --thread budget
run trips:held "Look" --thread held
inbox --thread held
answer approve --thread held
run trips:growing "Look" --thread growing
inbox --thread growing
run files:agent go --thread files --workspace work
changes files
answer yes --thread files
changes files
changes files head/north
discard files --file new.md
discard files --file new.md --yes
merge files
merge files
changes plain
dismiss head/clerk --thread two --yes --by anna
dismiss head/one --thread two --yes --by anna
dismiss head/one --thread two --yes --by anna
dismiss head --thread growing --graceful --yes --by anna
threads --all
prune
prune --thread plain --dry-run
prune --thread plain --turns 1
prune --all --younger 30d
delete plain
delete plain --yes
delete plain --yes
backup copy.sqlite
backup copy.sqlite
breakers --close head/clerk
doctor
serve-mcp travel --port 8765
run travel "Plan a trip to Italy with great food" --thread demo
tree --thread demo --flat
trace --thread demo
usage --thread demo
show demo
"""

VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(call_|run-|lc_)?[0-9a-f]{16,}(-\d+)?\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b"), "<minute>"),
    (re.compile(r"\b20(2[6-9]|[3-9]\d)-\d\d-\d\d\b"), "<day>"),
    (re.compile(r"\b\d+\.\d+s\b"), "<seconds>"),
    (re.compile(r" +<seconds>"), " <seconds>"),
    (re.compile(r"\b(\d+\.\d s|\d+ s|\d+ min \d\d s)\b"), "<duration>"),
    (re.compile(r'"(deadline|seconds|bytes|rows|wait)": [0-9][0-9.e-]*'), r'"\1": <number>'),
    (re.compile(r'"alias": "[^"]+"'), '"alias": <alias>'),
    (re.compile(r"\b\d+\.\d MB\b"), "<size>"),
    (re.compile(r"\b\d+ rows\b"), "<rows> rows"),
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-<moment>"),
    (re.compile(r"\b(scout|digger)-[0-9a-f]{8}\b"), r"\1-<hash>"),
    (re.compile(r"line \d+, in"), "line <n>, in"),
    (re.compile(r"(?<=>) \([A-Z][a-z]+\)(?= asks)"), " (<alias>)"),
    (re.compile(r"echelons \d+\.\d+\.\d+\S*"), "echelons <version>"),
)
"""What is another in each run, and what stands for it."""
FRAME = re.compile(r"[─│╭╮╰╯\s]+")
"""What Rich draws around options, and breaks their lines with."""


def record(folder: Path, databases: Sequence[str] = DATABASES) -> str:
    """Return what the commands print in a folder without a terminal."""
    for name in databases:
        shutil.copy(FIXTURES / f"{name}.db", folder)
    (folder / "trips.py").write_text(TRIPS, encoding="utf-8")
    (folder / "files.py").write_text(OFFICE, encoding="utf-8")
    (folder / "prices.toml").write_text(PRICES, encoding="utf-8")
    (folder / "work").mkdir()
    (folder / "work" / "plan.md").write_text("Rome\n")
    before = Path.cwd()
    variables = {"ECHELONS_DB": "trips.sqlite", "COLUMNS": "100", "TZ": "UTC", "USER": "anna"}
    removed = ("ECHELONS_DEBUG", "OPENAI_API_KEY", "OPENAI_BASE_URL", "NO_COLOR", "FORCE_COLOR")
    try:
        os.chdir(folder)
        with patch.dict(os.environ, variables), patch.object(sys, "path", [*sys.path]):
            for name in removed:
                os.environ.pop(name, None)
            time.tzset()
            blocks = [_call([name, "--help"], folder) for name in COMMANDS.split()]
            for name in databases:
                for line in READERS.split("\n")[1:-1]:
                    words = [*shlex.split(line), "--db", f"{name}.db"]
                    blocks += [_call(words, folder), _call([*words, "--json"], folder)]
            for line in SCRIPT.split("\n")[1:-1]:
                words = shlex.split(line)
                blocks.append(_call(words, folder))
                if not words[0].startswith("-"):
                    blocks.append(_call([*words, "--json"], folder))
    finally:
        os.chdir(before)
        time.tzset()
        for module in ("trips", "files"):
            sys.modules.pop(module, None)
    return "\n".join(blocks)


def _call(words: list[str], folder: Path) -> str:
    done = CliRunner().invoke(app, words, input="Read from the input")
    streams = [_replace_varying(text, folder) for text in (done.stdout, done.stderr)]
    if "--help" in words:
        streams = [FRAME.sub(" ", text) for text in streams]
    elif words[0] in ("run", "answer", "resume"):
        # Agents are at work at the same time.
        streams = ["\n".join(sorted(text.split("\n"))) for text in streams]
    out, err = streams
    return f"$ echelons {shlex.join(words)}\nexit {done.exit_code}\n{out}\n--- errors\n{err}\n"


def _replace_varying(text: str, folder: Path) -> str:
    text = text.replace(str(folder.resolve()), "<folder>").replace(str(folder), "<folder>")
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        RECORD.write_text(record(Path(made)), encoding="utf-8")
