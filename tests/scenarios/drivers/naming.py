"""A process that gives agents aliases, one commit each, and prints them as JSON.

``python -m tests.scenarios.drivers.naming DATABASE THREAD AGENTS`` waits for a line first.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.agent_aliases import assign_alias
from echelons.checkpoints.ledger import Transaction
from echelons.tree.name_themes import load_theme


def name_agents(database: str, thread: str, agents: str) -> list[str]:
    """Return the aliases of so many agents of a thread."""
    theme = load_theme("birds")

    def assign(agent_id: str, open_: Transaction) -> str:
        return assign_alias(open_, thread, agent_id, theme, "seed")

    with SqliteCheckpointer(database) as saver:
        print("ready", flush=True)
        sys.stdin.readline()
        return [
            saver.ledger.commit(partial(assign, f"agent-{number}")) for number in range(int(agents))
        ]


if __name__ == "__main__":
    print(json.dumps(name_agents(*sys.argv[1:])))
