"""`Limits` of a tree. Those of the root apply to the whole tree.

The depth is checked when the tree is built. The others are counted while it runs, from 0 for
each turn of the root, in the ledger where there is one: a resume, another process or a crash
does not reset them.
"""

from __future__ import annotations

from pydantic import Field

from echelons.settings import Settings

MAX_DEPTH = 32
"""Maximum levels of a tree: LangGraph's metadata grows with the cube of the depth."""
DEFAULT_STEPS = 10_000
"""Default limit of steps in a turn: it bounds a runaway, and is far above normal work."""
DEFAULT_REFUSALS = 3
"""Default limit of refusals: a model that has read the reason twice will not heed it."""
DEFAULT_RESULT_TOKENS = 25_000
"""Default limit of what a model is shown of a result: a tenth of a usual context."""
MIN_RESULT_TOKENS = 200
"""A result has a line about how to read on; less would show hardly more than that."""
DEFAULT_REPEATS = 8
"""Default limit of repetitions: a model that is told after half of them has a chance to turn."""


class Limits(Settings):
    """The limits of a tree: for all its agents together, in one turn of the root.

    Reaching a limit raises no error: no further work begins, each agent ends with what it has,
    and the root's response names the limit. An agent that is not the root has a limit of depth
    only.

    Attributes:
        depth: Maximum levels of the tree under this agent, the agent itself included;
            between 1 and 32.
        steps: Maximum model calls, tool calls and runs of subordinates.
        calls: Maximum model calls.
        tokens: Maximum tokens read and written by models, as they report them. The reply that
            exceeds it is still received; no other model call begins.
        seconds: Maximum running time of the turn. It does not count while the turn waits for a
            human, is paused, or its process is dead. Work that has begun is not interrupted.
        width: Maximum parallel calls of one message, including requests sent to several
            subordinates at once; calls beyond are answered with an error for the model.
        max_refusals: Maximum refusals of the same call in a row, of one agent. Its response is
            `partial` then, with the reason of the last refusal; `None` for no limit.
        result_tokens: Maximum tokens that a model is shown of one result of a tool or subordinate,
            at least 200; the results of one message have twice as many together. The thread keeps
            the whole result, in which `read_result` reads on; `None` for no limit.
        max_repeats: Maximum calls with the same arguments and the same result, in a row or not,
            of one agent for one request. It gets a warning at half of them, and its response is
            `partial` at the last. Calls of tools that poll (`effect(polls=True)`) and questions to
            people do not count; `None` for no limit.

    Raises:
        InvalidSetting: A limit is out of its range, or has an unknown name.

    Examples:
        >>> Limits(depth=3, calls=100).depth
        3
    """

    __stored_as__ = "echelons.limits.Limits"

    depth: int = Field(default=MAX_DEPTH, ge=1, le=MAX_DEPTH)
    steps: int = Field(default=DEFAULT_STEPS, ge=1)
    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    width: int | None = Field(default=None, ge=1)
    max_refusals: int | None = Field(default=DEFAULT_REFUSALS, ge=1)
    result_tokens: int | None = Field(default=DEFAULT_RESULT_TOKENS, ge=MIN_RESULT_TOKENS)
    max_repeats: int | None = Field(default=DEFAULT_REPEATS, ge=2)

    @property
    def root_only_names(self) -> tuple[str, ...]:
        """Names of the limits that were given and that only a root may have."""
        return tuple(sorted(self.model_fields_set - {"depth"}))
