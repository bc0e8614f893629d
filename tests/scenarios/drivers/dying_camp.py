"""The team of `camp`, whose process is killed in the model call of the camp.

``python -m tests.scenarios.drivers.dying_camp DATABASE WAY`` sends it a task, by `send` or `asend`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Session
from tests.scenarios.drivers.camp import team


def die(_: Sequence[BaseMessage]) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def run(database: str, way: str) -> None:
    """Send the task."""

    async def send() -> None:
        await (await session.asend("go")).result()

    with Session(team({"camp": die}), database) as session:
        if way == "asend":
            asyncio.run(send())
        else:
            session.send("go").result()


if __name__ == "__main__":
    run(*sys.argv[1:])
