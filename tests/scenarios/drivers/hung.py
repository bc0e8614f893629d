"""A tree whose tool hangs after its effect, and the process that hangs.

``python -m tests.scenarios.drivers.hung DATABASE MODE`` sends the thread's task, stops itself
with ``SIGSTOP`` in the tool of the lowest level, or in a transaction, and prints how its run ends.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelons import Agent, EchelonsError, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate

THREAD = "trip"


def build_tree(book: Callable[[], None]) -> Agent:
    """Return a tree of three levels, whose lowest agent books a room."""

    def book_room() -> str:
        """Book a room: the same twice is a mistake."""
        book()
        return "booked"

    scripts: dict[str, Any] = {
        "head": [delegate("chief", "plan"), "head is done"],
        "chief": [delegate("clerk", "book"), "chief is done"],
        "clerk": [Call("book_room"), "clerk is done"],
    }
    chief = Agent("chief", subordinates=[Agent("clerk", tools=[book_room])])
    return Agent("head", model=ScriptedModel(scripts), subordinates=[chief])


def stop_here() -> None:
    """Stop the process in this thread, which after `os.kill` might go on for a moment."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def run_until_stopped(database: Path, mode: str) -> str:
    """Send the task, and return the name of the error that the woken run gets."""
    bookings = database.with_suffix(".bookings")

    def book() -> None:
        with bookings.open("a") as log:
            log.write("a room\n")
        if mode == "tool":
            with saver.lock:  # not while another thread of this process is in a transaction
                stop_here()
        else:
            saver.ledger.commit(lambda _: stop_here())

    with SqliteCheckpointer(database) as saver:
        try:
            return Session(build_tree(book), saver, thread=THREAD).send("go").result().text
        except EchelonsError as error:
            return type(error).__name__


if __name__ == "__main__":
    print(run_until_stopped(Path(sys.argv[1]), sys.argv[2]))
