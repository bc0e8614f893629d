"""Kills siblings that talk to each other, and has another process let them go on.

``python -m tests.crash.drivers.chats FOLDER TRIALS`` prints, as JSON, a report of a chat that
nothing happens to, and of one for each of so many trials, with a death at a statement or two. Each
process is a fork of this one.
"""

from __future__ import annotations

import sys
from typing import Any

from echelons import Session, SqliteCheckpointer
from tests.crash.drivers.interventions import submit
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place
from tests.scenarios.drivers.siblings import chat

MESSAGES = 10
"""How many messages each sends the other."""


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the chat to its end, whatever was done of it, and return who was told what."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(chat(MESSAGES), saver, thread="t")
        text = submit(session, world)
        told = {
            each.agent: sorted([mail.kind, mail.text] for mail in each.mail)
            for each in session.trace().walk()
        }
        order = {
            each.agent: [mail.text for mail in each.mail if mail.kind == "message"]
            for each in session.trace().walk()
        }
        return {"text": text, "told": told, "order": order}


if __name__ == "__main__":
    main(live, *sys.argv[1:])
