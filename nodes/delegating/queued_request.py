"""A request in a delegation's queue, its attempts, and the message that answers it.

Pure. `request_queue` decides what happens to it next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import ToolMessage

from echelons.delegation.aggregation import LIMIT, settle
from echelons.delegation.candidates import NOBODY, Ways
from echelons.delegation.race import Entrant
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import message_id, subordinate_thread_id
from echelons.identity.thread_history import Head
from echelons.tree.names import CALL_SUBORDINATE


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a delegation's queue, as it is stored.

    Attributes:
        request: The request, addressed to the subordinate of this attempt.
        call_id: Id of the superior's call that it answers, or of a part of one.
        thread_id: The subordinate's thread.
        continues: Whether the thread existed before the request.
        message_id: The superior's message, from which further attempts derive their thread ids.
        ways: The remaining candidates.
        tried: The responses of earlier attempts.
        reset: Whether a relayed request starts new conversations on its route.
        part: Its race entry, if it is a part of a call; `None` if it is the whole call.
        routed: Whether the router has found its candidates.
    """

    request: DelegationRequest
    call_id: str
    thread_id: str
    continues: bool
    message_id: str = ""
    ways: Ways = NOBODY
    tried: tuple[DelegationResponse, ...] = ()
    reset: bool = False
    part: Entrant | None = None
    routed: bool = False

    def stored(self) -> dict[str, Any]:
        """Return the queued request as JSON."""
        kept: dict[str, Any] = {
            "request": self.request.stored(),
            "call_id": self.call_id,
            "thread_id": self.thread_id,
            "continues": self.continues,
        }
        if self.ways or self.tried or self.request.route:
            kept |= {
                "message_id": self.message_id,
                "ways": self.ways.stored(),
                "tried": [each.stored() for each in self.tried],
                "reset": self.reset,
            }
        if self.part:
            kept["part"] = self.part.stored()
        if self.routed:
            kept["routed"] = True
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Order:
        """Return a queued request from JSON.

        Raises:
            UnreadableRecord: It, or the request in it, is damaged.
        """
        match stored:
            case {"request": given, "call_id": str(call), "thread_id": str(thread)}:
                request = DelegationRequest.load(given)
            case _:
                raise UnreadableRecord(cls.__name__, "it is not stored as one")
        return cls(
            request,
            call,
            thread,
            bool(stored.get("continues")),
            stored.get("message_id", ""),
            Ways.load(stored["ways"]) if "ways" in stored else NOBODY,
            tuple(DelegationResponse.load(each) for each in stored.get("tried", ())),
            stored.get("reset", False),
            Entrant.load(stored["part"]) if "part" in stored else None,
            stored.get("routed", False),
        )

    def waiting(self) -> Order:
        """Return it without a deadline, which is set when the request before it has ended."""
        return replace(self, request=self.request.model_copy(update={"deadline": None}))

    def end(self, state: Mapping[str, Any]) -> Head | None:
        """Return the head of its thread, as far as the delegation's state knows."""
        known: Mapping[str, Head] = state.get("heads") or {}
        if self.thread_id in known:
            return known[self.thread_id]
        return None if self.tried else state.get("head")

    def following(self, answer: DelegationResponse, superior: str) -> Order | None:
        """Return the next attempt, or `None` if the answer suffices or no candidate is left.

        Args:
            answer: The response of this attempt.
            superior: Thread of the agent that delegates.
        """
        if not self.ways.ahead or answer.status not in (Status.UNABLE, Status.PARTIAL):
            return None
        # The limit holds for every other candidate too.
        if answer.reason.startswith(LIMIT):
            return None
        current, *route = self.ways.ahead[0]
        attempt = self.request.attempts + 1
        request = self.request.model_copy(
            update={
                "current": current,
                "route": tuple(route),
                "path": (*self.request.path[:-1], current),
                "attempts": attempt,
            }
        )
        thread = subordinate_thread_id(superior, self.message_id, self.call_id, attempt)
        return replace(
            self,
            request=request,
            thread_id=thread,
            continues=False,
            ways=self.ways.after(),
            tried=(*self.tried, self._kept(answer)),
        )

    def settled(self, answer: DelegationResponse) -> DelegationResponse:
        """Return the combined response of all attempts."""
        if not self.tried:
            # The parts of a call are joined when all have ended.
            if self.part:
                return self._kept(answer)
            if not self.routed:
                return answer
        asked = self.request.model_copy(
            update={"current": self.request.origin, "path": self.request.path[:1]}
        )
        return settle(asked, self.attempts(answer) or [answer], self.ways.needs, self.ways.able)

    def attempts(self, answer: DelegationResponse) -> tuple[DelegationResponse, ...]:
        """Return the responses of all attempts; empty if this was the only one."""
        return (*self.tried, self._kept(answer)) if self.tried else ()

    def _kept(self, answer: DelegationResponse) -> DelegationResponse:
        return answer.model_copy(update={"thread_id": self.thread_id})


def part_entry(
    response: DelegationResponse, place: int = 0, attempts: Sequence[DelegationResponse] = ()
) -> dict[str, Any]:
    """Return the entry of a finished part for the superior's state."""
    entry: dict[str, Any] = {"response": response.stored(), "place": place}
    if attempts:
        entry["attempts"] = [each.stored() for each in attempts]
    return entry


def tool_message(
    order: Order, answer: DelegationResponse, tool: str = CALL_SUBORDINATE
) -> ToolMessage:
    """Return the tool message that answers a call, with the response as its artifact."""
    unable = answer.status is Status.UNABLE
    plain = answer.status is Status.FULFILLED
    note = f"[{answer.status}] {answer.reason}".strip()
    content = answer.result if plain else "\n".join(part for part in (note, answer.result) if part)
    return ToolMessage(
        content,
        id=message_id(order.thread_id, f"answer/{order.request.id}"),
        tool_call_id=order.call_id,
        name=tool,
        artifact=answer.stored(),
        status="error" if unable else "success",
        additional_kwargs={"unavailable": True} if unable else {},
    )
