"""What runs in a peer's own interpreter: does what it is told, a line of JSON for each command.

Started by ``serve.py``, which only sets the path, with the arguments ``MODULE SETTING FOLDER
CROWD LATENCY``. It opens the peer, says what it can do, and then answers each ``{"work": …,
"number": …}`` with what it cost, and ``{"size": …}`` with megabytes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast

from benchmarks.measure import Cost, megabytes, settled, timed
from benchmarks.peers.work import CHAIN, FOUND, Peer, Size, Works, place
from benchmarks.tally import TALLY


async def serve(peer: Peer, arguments: list[str], commands: TextIO, answers: TextIO) -> None:
    """Work until there are no more commands."""
    setting, folder, crowd, latency = arguments
    place = Path(folder)
    async with peer.opened(place, setting, Size(int(crowd), float(latency))) as works:
        versions = {package: version(package) for package in peer.PACKAGES}
        _say(answers, {"works": list(works), "versions": versions})
        with settled():
            # Reading holds up the loop on purpose: nothing is to go on between the rounds.
            while line := commands.readline():
                _say(answers, await _answer(json.loads(line), works, place))


async def _answer(command: dict[str, Any], works: Works, folder: Path) -> dict[str, Any]:
    if "size" in command:
        kept = place(folder, command["size"]).glob("*.sqlite")
        return {
            "megabytes": sum(map(megabytes, kept)),
            "leaf": keeps_the_leaf(place(folder, CHAIN)),
        }
    costs: list[Cost] = []
    TALLY.take()
    try:
        with timed(costs):
            said = await works[command["work"]](command["number"])
    except Exception as refused:
        return {"error": f"{type(refused).__name__}: {refused}"}
    turns, tools = TALLY.take()
    (cost,) = costs
    return {"cpu": cost.cpu, "wall": cost.wall, "said": said, "turns": turns, "tools": tools}


def keeps_the_leaf(chain: Path) -> bool:
    """Return whether the leaf's own steps are stored, as they are or, as DBOS does, in base64."""
    found = [FOUND.encode(), *_base64(FOUND.encode())]
    stored = [each.read_bytes() for each in chain.iterdir()]
    return any(each in bytes_ for each in found for bytes_ in stored)


def _base64(sought: bytes) -> list[bytes]:
    """Return what is the same in every base64 text of the sought bytes, wherever they begin."""
    shifted = [base64.b64encode(bytes(shift) + sought) for shift in range(3)]
    # The first and last characters of a text hold bits of what is around it.
    return [each.rstrip(b"=")[4:-1] for each in shifted]


def _say(answers: TextIO, said: dict[str, Any]) -> None:
    answers.write(f"{json.dumps(said)}\n")
    answers.flush()


def main() -> None:
    """Keep the standard output for the answers; what a framework prints goes with the errors."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, *arguments = sys.argv[1:]
    peer = cast("Peer", importlib.import_module(f"benchmarks.peers.{module}"))
    with contextlib.closing(answers):
        asyncio.run(serve(peer, arguments, sys.stdin, answers))
