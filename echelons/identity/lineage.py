"""Derived ids of threads, requests and messages, and the identity that a run carries.

Every id is computed from stored data, so it is known before a subordinate runs. The identity is
passed on as `config["metadata"]`, whose scalars LangGraph stores in every checkpoint row: the
lineage is as atomic as the checkpoint and works with every saver.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from echelons.guards.gate import HALT_KEY
from echelons.run_context import get_context
from echelons.text.input_limits import check_label, is_label
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


ECHELONS_NS = UUID("8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11")
"""Namespace of all ids that this library derives (RFC 9562, version 5)."""

THREADS_KEY = "sub_agent_thread_id"
"""Key of a message's `response_metadata`: the thread ids of its calls, by call id."""

ROUTES_KEY = "routes"
"""Likewise: the candidates of calls that name no subordinate, best first, by call id."""

PARTS_KEY = "parts"
"""Likewise: the requests of calls that make several, by call id."""

ADDED_KEY = "spawned"
"""Likewise: the specifications of the spawned agents that calls go to, by call id and name."""

ROSTER_KEY = "roster"
"""Likewise, of a notice or a result: what it tells of subordinates that come and go, by name."""

REQUESTS_KEY = "requests"
"""Likewise: the fields of requests that cannot be derived from the message, by call id."""

SIDE_BY_SIDE_KEY = "side_by_side"
"""Likewise: the ids of calls whose subordinate was sent others, on other threads."""

FORWARDED_KEY = "forwarded"
"""Likewise: marks messages of a level that only relays a request; no model wrote them."""

REFUSED_KEY = "refused"
"""Likewise: marks the answer to a call that was refused; nothing was run for it."""

UNASKED_KEY = "unasked"
"""Likewise: marks the answer of an agent that has subordinates and no tools, and asked none."""

REQUEST_CONTEXT_KEY = "request_context"
"""Likewise, of a task: the context of the root's request."""

ADDRESSEE_KEY = "addressee"
"""Likewise, of a task: the agents below that it is passed on to, down to the one that is meant."""

ASIDE_KEY = "mail"
"""Likewise: marks a message that is no task, of the mailbox or of the library, with its sender."""

CUT_KEY = "cut"
"""Likewise: marks a reply that was cut off by an intervention."""

END_KEY = "end"
"""Likewise, of a reply: how it ended, a kind of `ReplyEnd`, unless it is complete."""

CONTINUED_KEY = "continued"
"""Likewise: marks a reply that was paused or cut at the length limit, after which its model went
on; its text is a part of the answer."""

REPORT_KEY = "report"
"""Likewise, of the answer to a call of `report`: the report, while other calls are waited for."""

QUESTIONS_KEY = "questions"
"""Likewise: the deadlines of questions to the user, by call id."""

USER_ANSWERS_KEY = "user_answers"
"""Likewise, of the answer to a call: what the user was asked for it, and answered."""

UNANSWERED_KEY = "unanswered"
"""Likewise: a question to the user that was not answered in time, which its superior gets."""

INPUT_KEY = "input"
"""Likewise, of a task for a root with a contract: the input, as JSON."""

DELEGATED_KEY = "delegated"
"""Likewise: marks the answer to a call of the tool that is named after a subordinate."""

WARNING_KEY = "warning"
"""Likewise, of the answer to a call: the warning for its agent, at the end of `content`."""

NOTICES_KEY = "notices"
"""Likewise: lines of the library beside a message; `True` if it wrote the whole message."""

FAILURE_KEY = "failure"
"""Metadata key of a recorded answer: the class of the exception that its tool has raised."""
PROMPT_KEY = "memory"
"""Metadata key of a reply: what its model has read: how much, and summaries of what was before."""
SHORTENED_KEY = "shortened"
"""Metadata key of a reply: how many tokens its model is shown at most, since it refused more."""
PIN_KEY = "pin"
"""Metadata key of the answer to a call of `pin`: the text."""
MENDED_KEY = "mended"
"""Metadata key of a reply: the arguments that its calls mean, where these differ, by call id."""
ASKED_KEY = "asked"
"""Metadata key of a reply whose calls of `ask` are of the library's tool, not of a user's."""
PAGE_KEY = "page"
"""Metadata key of the answer to a call of `read_result`: the id of the result it is a part of."""

CALLS_KEY = "calls"
"""Metadata key of an answer: what the models have used that were called for it, as JSON."""

RETURNED_KEY = "returned"
"""Metadata key of a message whose text a function, a Runnable or a hook returned."""

OWN_KEYS = frozenset({
    THREADS_KEY, ROUTES_KEY, PARTS_KEY, REQUESTS_KEY, ADDED_KEY, SIDE_BY_SIDE_KEY, FORWARDED_KEY,
    REFUSED_KEY, UNASKED_KEY, REQUEST_CONTEXT_KEY, ADDRESSEE_KEY, ASIDE_KEY, CUT_KEY, END_KEY,
    CONTINUED_KEY, REPORT_KEY, QUESTIONS_KEY, USER_ANSWERS_KEY, UNANSWERED_KEY, INPUT_KEY,
    DELEGATED_KEY, WARNING_KEY, NOTICES_KEY, ROSTER_KEY, FAILURE_KEY, PROMPT_KEY, PIN_KEY,
    SHORTENED_KEY, CALLS_KEY, PAGE_KEY, MENDED_KEY, ASKED_KEY,
})  # fmt: skip
"""The keys that only this library may write; removed from messages that come from outside."""


_NOT_FROM_MODEL = frozenset({HALT_KEY, FORWARDED_KEY, RETURNED_KEY})


def is_from_model(metadata: Mapping[str, Any]) -> bool:
    """Return whether a model wrote the reply that has this `response_metadata`."""
    return _NOT_FROM_MODEL.isdisjoint(metadata)


def strip_own_metadata(message: BaseMessage) -> dict[str, Any]:
    """Return the `response_metadata` of a message without `OWN_KEYS`."""
    return {key: value for key, value in message.response_metadata.items() if key not in OWN_KEYS}


def derive_agent_id(root_thread_id: str, path: str) -> str:
    """Return the id of an agent on a root's thread, the same in every process."""
    return str(uuid5(ECHELONS_NS, f"agent/{root_thread_id}/{path}"))


def derive_root_thread_id(name: str) -> str:
    """Return the thread id of the root thread with a given name.

    A name that is a UUID is its own id: LangGraph Studio identifies threads by UUIDs.

    Examples:
        >>> derive_root_thread_id("trip") == derive_root_thread_id("trip")
        True
        >>> derive_root_thread_id("8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11")
        '8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11'
    """
    try:
        return str(UUID(name))
    except ValueError:
        return str(uuid5(ECHELONS_NS, name))


def derive_subordinate_thread_id(superior: str, message: str, call: str, attempt: int = 1) -> str:
    """Return the id of the thread that a call in a message of a superior's thread starts."""
    # Some models repeat call ids between turns, so the message's id is needed too. Each attempt
    # has a thread.
    suffix = "" if attempt == 1 else f"/{attempt}"
    return str(uuid5(ECHELONS_NS, f"{superior}/{message}/{call}{suffix}"))


def derive_request_id(superior: str, message: str, call: str) -> str:
    """Return the id of the request that a call makes, the same for all its attempts."""
    return str(uuid5(ECHELONS_NS, f"request/{superior}/{message}/{call}"))


def derive_message_id(thread: str, position: str) -> str:
    """Return the id for a message of a thread that has none."""
    return str(uuid5(ECHELONS_NS, f"message/{thread}/{position}"))


@dataclass(frozen=True, slots=True)
class Identity:
    """The agent, thread and request of a run, as kept in its metadata."""

    agent: str
    path: tuple[str, ...]  # names from the root down to the agent
    thread_id: str  # of the agent's thread
    tree: str  # fingerprint
    superior_thread_id: str = ""  # empty for a root
    request_id: str = ""  # empty for a root
    thread_name: str = ""  # display name of the root thread
    turn: str = ""  # of the root; the same after a resume

    def to_metadata(self) -> dict[str, str]:
        """Return the identity as metadata, scalars only: LangGraph stores nothing else."""
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
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Identity | None:
        """Return the identity in a run's metadata, or `None` if there is none."""
        values = tuple(map(metadata.get, METADATA_KEYS, _DEFAULTS))
        if set(map(type, values)) != {str}:
            if not all(isinstance(value, str) for value in values):
                return None
            # The name of an agent may be of a subclass, such as a `StrEnum`.
            values = tuple(map(str.__str__, values))
        # Cached, because every node and every write reads the same few identities.
        return _read_identity(values)


@lru_cache(maxsize=1024)
def _read_identity(values: tuple[str, ...]) -> Identity | None:
    agent, path, thread_id, *others = values
    if not agent or not thread_id:
        return None
    return Identity(agent, tuple(path.split(PATH_SEPARATOR)), thread_id, *others)


def require_identity(config: Mapping[str, Any] | None) -> Identity:
    """Return the identity in the config of a run; fail if its tree did not start the level."""
    identity = Identity.from_metadata((config or {}).get("metadata") or {})
    if identity is None:
        raise RuntimeError("a level runs without an identity; start it through Agent.compile()")
    return identity


def get_level(config: Mapping[str, Any]) -> int:
    """Return the level of the agent of a node's config, the trees around included; 1 is a root."""
    return get_context(config).levels_around + len(require_identity(config).path)


METADATA_KEYS = tuple(Identity("", (), "", "").to_metadata())
"""The keys of an identity in a run's metadata, in the order of its fields; all other keys are
the caller's."""
STORED_KEYS_KEY = "stored_keys"
"""Key of a run's metadata: which of its keys are of the caller's `configurable`, in one text."""
_DEFAULTS = ("",) * len(METADATA_KEYS)


def choose_user_name(name: object = None) -> str:
    """Return the name for answers and orders of a person: unverified, else the system user's.

    Examples:
        >>> choose_user_name("Ann")
        'Ann'
    """
    if name is not None:
        return check_label(name, "by")
    try:
        name = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        name = ""
    return name if is_label(name) else f"user {os.getuid()}" if hasattr(os, "getuid") else "user"
