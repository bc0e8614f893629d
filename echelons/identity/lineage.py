"""Whose conversation is it: derived thread ids and the identity that a run carries.

Every id is computed from what is already written down, so it is known, and stored with
the superior's message, before a subordinate runs. The identity travels as
``config["metadata"]``; LangGraph stores its scalars in every checkpoint row, so the
lineage is as atomic as the checkpoint and works on every saver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

ECHELONS_NS = UUID("8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11")
"""Namespace of all ids that this library derives (RFC 9562, version 5)."""

THREADS_KEY = "sub_agent_thread_id"
"""Where a message's ``response_metadata`` keeps the threads of its calls, by call id."""

ROUTES_KEY = "routes"
"""Where it keeps who may take a call that names nobody, the best first, by call id."""

PARTS_KEY = "parts"
"""Where it keeps what a call asks for that makes several requests, by call id."""

REQUESTS_KEY = "requests"
"""Where it keeps what of a request is not plain from its call, by call id."""

FORWARDED_KEY = "forwarded"
"""What marks the messages of a level that only passes a request on; no model wrote them."""

OWN_KEYS = frozenset({THREADS_KEY, ROUTES_KEY, PARTS_KEY, REQUESTS_KEY, FORWARDED_KEY})
"""All of these: what anybody else has written under them means nothing."""


def foreign(message: BaseMessage) -> dict[str, Any]:
    """Return the ``response_metadata`` of a message from outside, without what only we may say."""
    return {key: each for key, each in message.response_metadata.items() if key not in OWN_KEYS}


def root_thread_id(name: str) -> str:
    """Return the id of the root thread that people call ``name``.

    A name that is a UUID already is kept: LangGraph Studio knows threads by UUIDs.

    Examples:
        >>> root_thread_id("trip") == root_thread_id("trip")
        True
        >>> root_thread_id("8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11")
        '8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11'
    """
    try:
        return str(UUID(name))
    except ValueError:
        return str(uuid5(ECHELONS_NS, name))


def subordinate_thread_id(superior: str, message: str, call: str, attempt: int = 1) -> str:
    """Return the id of the thread that a call starts.

    Args:
        superior: Thread id of the calling agent.
        message: Id of the message that holds the call; some models repeat call ids
            between turns, so the call alone would not do.
        call: Id of the call in that message.
        attempt: 1 for the first try; a later one has a thread of its own.
    """
    suffix = "" if attempt == 1 else f"/{attempt}"
    return str(uuid5(ECHELONS_NS, f"{superior}/{message}/{call}{suffix}"))


def request_id(superior: str, message: str, call: str) -> str:
    """Return the id of the request that a call makes, whichever thread it runs on."""
    return str(uuid5(ECHELONS_NS, f"request/{superior}/{message}/{call}"))


def message_id(thread: str, position: str) -> str:
    """Return an id for a message of ``thread`` that came without one."""
    return str(uuid5(ECHELONS_NS, f"message/{thread}/{position}"))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who runs: the part of a run's metadata that is ours.

    Attributes:
        agent: The agent's name.
        path: Its place in the tree, from the root.
        thread_id: Id of its own thread.
        tree: Fingerprint of the tree that is running.
        superior_thread_id: Thread of the agent that called it; empty for a root.
        request_id: The request that it works on; empty for a root.
        thread_name: What people call the root thread; empty if it has no name.
        turn: The root's turn that all of this is a part of, resumed or not.
    """

    agent: str
    path: tuple[str, ...]
    thread_id: str
    tree: str
    superior_thread_id: str = ""
    request_id: str = ""
    thread_name: str = ""
    turn: str = ""

    def metadata(self) -> dict[str, str]:
        """Return the identity as metadata; scalars only, LangGraph drops anything else."""
        return {
            "agent": self.agent,
            "agent_path": PATH_SEPARATOR.join(self.path),
            "agent_thread_id": self.thread_id,
            "tree": self.tree,
            "superior_thread_id": self.superior_thread_id,
            "request_id": self.request_id,
            "thread_name": self.thread_name,
            "turn_id": self.turn,
        }

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Identity | None:
        """Return the identity in some metadata, or ``None`` where there is none of ours."""
        values = tuple([metadata.get(key, "") for key in METADATA_KEYS])
        # Every node of a level and every write reads the same few identities.
        return _read_identity(values) if set(map(type, values)) == {str} else None


@lru_cache(maxsize=1024)
def _read_identity(values: tuple[str, ...]) -> Identity | None:
    agent, path, thread_id, tree, superior_thread_id, request_id, thread_name, turn = values
    if not agent or not thread_id:
        return None
    return Identity(
        agent=agent,
        path=tuple(path.split(PATH_SEPARATOR)),
        thread_id=thread_id,
        tree=tree,
        superior_thread_id=superior_thread_id,
        request_id=request_id,
        thread_name=thread_name,
        turn=turn,
    )


def require_identity(config: Mapping[str, Any] | None) -> Identity:
    """Return the identity in the config of a run.

    Raises:
        RuntimeError: There is none: the level was started by something other than its tree.
    """
    identity = Identity.read((config or {}).get("metadata") or {})
    if identity is None:
        raise RuntimeError("a level runs without an identity; start it through Agent.compile()")
    return identity


METADATA_KEYS = (
    "agent",
    "agent_path",
    "agent_thread_id",
    "tree",
    "superior_thread_id",
    "request_id",
    "thread_name",
    "turn_id",
)
"""Keys of a run's metadata that say who runs; nothing else of a caller's is ours."""
