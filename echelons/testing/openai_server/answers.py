"""What the server can do with a request: answer it, refuse it, hang, or break off.

Scripts hold these (a plain step stands for ``Answer``); the server calls ``respond``.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Protocol

from echelons.errors import InvalidScript
from echelons.testing.openai_server import wire
from echelons.testing.openai_server.exchange import Exchange
from echelons.testing.steps import Reply, as_reply


class Response(Protocol):
    """A step of the server's script."""

    def respond(self, exchange: Exchange) -> None:
        """Do to the connection what this step stands for."""


@dataclass(frozen=True)
class Answer:
    """The reply as OpenAI would send it, whole or streamed as the client asked."""

    reply: Reply

    def respond(self, exchange: Exchange) -> None:
        """Send it after its latency."""
        exchange.pause(self.reply.latency)
        if not exchange.request.streams:
            exchange.send(wire.completion(exchange.request, self.reply))
            return
        exchange.open_stream()
        for event in wire.events(exchange.request, self.reply):
            exchange.send_event(event)
        exchange.close_stream()


@dataclass(frozen=True)
class HttpError:
    """A refusal with a status, such as 429 or 500. For several in a row: ``[step] * n``.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds after which the client may come again, or None to say nothing.
        message: The text of the error.
    """

    status: int
    retry_after: float | None = None
    message: str = "scripted failure"

    def respond(self, exchange: Exchange) -> None:
        """Send the error, its delay in whole seconds and, as OpenAI does, in milliseconds."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_after))
            headers["Retry-After-Ms"] = str(math.ceil(self.retry_after * 1000))
        kind = "rate_limit_error" if self.status == 429 else "server_error"
        exchange.send(wire.error(self.message, kind), self.status, headers)


@dataclass(frozen=True, eq=False)
class Hang:
    """An answer that does not come, or stops in its middle, until it is released.

    Attributes:
        step: What is answered after the release: a text, ``Reply`` or calls.
        after: How many events of a stream go out first; with 0 not even a header does.
        reached: Set as soon as a request hangs here.
        released: Set by ``release``.

    Raises:
        InvalidScript: The step is none of these.
    """

    step: object = ""
    after: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        plain_reply(self.step)

    def release(self) -> None:
        """Let the answer go on, for every request that hangs here or will."""
        self.released.set()

    def respond(self, exchange: Exchange) -> None:
        """Send what goes first, wait, and send the rest."""
        reply = plain_reply(self.step)
        if not (exchange.request.streams and self.after):
            if exchange.hold(self):
                Answer(reply).respond(exchange)
            return
        stream = wire.events(exchange.request, reply)
        exchange.open_stream()
        for event in stream[: self.after]:
            exchange.send_event(event)
        if exchange.hold(self):
            for event in stream[self.after :]:
                exchange.send_event(event)
            exchange.close_stream()


@dataclass(frozen=True)
class Drop:
    """An answer whose connection breaks off.

    Attributes:
        step: What is begun: a text, ``Reply`` or calls.
        after: How many events of a stream go out first. An answer that is not streamed
            stops in its middle; with 0 either breaks off before its first byte.

    Raises:
        InvalidScript: The step is none of these.
    """

    step: object = "cut short"
    after: int = 2

    def __post_init__(self) -> None:
        plain_reply(self.step)

    def respond(self, exchange: Exchange) -> None:
        """Send the beginning and no more."""
        reply = plain_reply(self.step)
        exchange.break_off()
        if not self.after:
            return
        if not exchange.request.streams:
            exchange.send_half(wire.completion(exchange.request, reply))
            return
        exchange.open_stream()
        for event in wire.events(exchange.request, reply)[: self.after]:
            exchange.send_event(event)


def plain_reply(step: object) -> Reply:
    """The reply that a step of plain data stands for.

    Raises:
        InvalidScript: It is no plain step.
    """
    reply = as_reply(step)
    if reply is None:
        raise InvalidScript(f"the step {step!r}", "a str, Reply, Call or list of Calls")
    return reply


def as_response(step: object) -> Response:
    """The response that a step of the server's script stands for.

    Raises:
        InvalidScript: It is no step.
    """
    if isinstance(step, HttpError | Hang | Drop):
        return step
    reply = as_reply(step)
    if reply is None:
        raise InvalidScript(
            f"the step {step!r}",
            "a str, Reply, Call, list of Calls, HttpError, Hang or Drop",
        )
    return Answer(reply)
