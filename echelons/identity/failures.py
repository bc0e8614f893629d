"""Failures of tools, models, functions and subordinates: the record of one, and the log of a run.

Every failure is logged once, where it becomes the answer of a call or ends the run: with the path,
the thread and the request of its agent, and an id for which the log and the trace can be searched.
The texts of its exception are redacted before anything else sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from echelons.identity.lineage import Identity
from echelons.run_context import get_context
from echelons.text.error_lines import (
    Redactor,
    apply_redactor,
    describe_error,
    find_server,
    format_traceback,
    note_server,
    redact_secrets,
)
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
_LOGGED_KEY = "__echelons_logged"
_OUTSIDE = Identity("", (), "", "")
"""The identity of a node that runs outside of a tree."""


@dataclass(frozen=True, slots=True)
class LoggedFailure:
    """One exception of a tool, or of an agent's model, function or graph."""

    id: str  # 12 hexadecimal digits, in the answer, the log and the trace
    at: str  # ISO 8601, UTC
    path: str  # of the agent
    thread_id: str  # of the agent
    request_id: str  # a root's is the id of its turn
    tool: str  # empty if the agent itself failed
    error: str  # type, and first line of the text
    traceback: str  # at most 64 KiB, without the values of variables

    @property
    def reason(self) -> str:
        """The text for a model."""
        return self.add_reference(self.error)

    def add_reference(self, text: str) -> str:
        """Return a text with the id of the failure."""
        return f"{text} (failure {self.id})"


class FailureLog:
    """Redacts and logs failures. A subclass also stores them."""

    def __init__(self, redactor: Redactor = redact_secrets) -> None:
        self.redactor = redactor

    def redact(self, text: str) -> str:
        """Return a text of an exception as it may be shown and stored."""
        return apply_redactor(self.redactor, text)

    def record(
        self, error: Exception, config: Mapping[str, Any], tool: str = "", *, leaves: bool = False
    ) -> LoggedFailure:
        """Log and store an exception, unless it was logged in a tree within the agent.

        It `leaves` if it goes on to the caller of the tree, which may be another tree.
        """
        failure, is_new = self._log(error, config, tool, leaves)
        if is_new:
            self.store(failure, config)
        return failure

    async def arecord(
        self, error: Exception, config: Mapping[str, Any], tool: str = "", *, leaves: bool = False
    ) -> LoggedFailure:
        """Async version of `record`."""
        failure, is_new = self._log(error, config, tool, leaves)
        if is_new:
            await self.astore(failure, config)
        return failure

    def store(self, failure: LoggedFailure, config: Mapping[str, Any]) -> None:
        """Store a failure with its thread: nowhere, unless a subclass does."""

    async def astore(self, failure: LoggedFailure, config: Mapping[str, Any]) -> None:
        """Async version of `store`."""

    def _log(
        self, error: Exception, config: Mapping[str, Any], tool: str, leaves: bool
    ) -> tuple[LoggedFailure, bool]:
        """Log an exception, unless it is logged; return its failure, and whether it is new."""
        identity = Identity.from_metadata(config.get("metadata") or {}) or _OUTSIDE
        if logged := _find_logged(error, identity):
            return logged, False
        if leaves and (server := find_server(error)):
            note_server(error, server)
        failure = LoggedFailure(
            uuid4().hex[:12],
            datetime.now(UTC).isoformat(),
            PATH_SEPARATOR.join(identity.path),
            identity.thread_id,
            identity.request_id or identity.turn,
            tool,
            describe_error(error, self.redactor),
            format_traceback(error, self.redactor),
        )
        # Not with `exc_info`: a handler would print the exception with all that it holds.
        LOG.warning(
            "failure %s in %s, thread %s, request %s: %s\n%s",
            failure.id,
            f"{failure.path}, tool {tool}" if tool else failure.path,
            failure.thread_id,
            failure.request_id or "none",
            failure.error,
            failure.traceback,
        )
        if leaves:
            vars(error)[_LOGGED_KEY] = failure
        return failure, True


def _find_logged(error: Exception, identity: Identity) -> LoggedFailure | None:
    """Return the failure of an exception that has come out of a tree within this agent."""
    logged = vars(error).get(_LOGGED_KEY)
    inside = f"{PATH_SEPARATOR.join(identity.path)}{PATH_SEPARATOR}"
    # The same exception object may be raised twice: then it is another failure.
    return logged if isinstance(logged, LoggedFailure) and logged.path.startswith(inside) else None


_UNSTORED = FailureLog()


def get_failure_log(config: Mapping[str, Any] | None) -> FailureLog:
    """Return the failure log in a run's config, or one that stores nothing."""
    return get_context(config).failures or _UNSTORED
