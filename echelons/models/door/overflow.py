"""`FittedRequest`: shortens a request that a provider refuses for its length, and asks again.

Only what is shown becomes shorter. The length is stored with the reply, a quarter below what was
accepted, so that the next request of the conversation is not refused first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from echelons.identity.lineage import SHORTENED_KEY, is_from_model
from echelons.models.door.bound_model import BoundModel
from echelons.models.door.notices import View
from echelons.models.fitting import BYTES_PER_TOKEN, count_cautiously, fit_messages
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.length_refusal import LengthRefusal, read_length_refusal

MAX_ATTEMPTS: Final = 4
"""How often one request is shortened at most."""
KEPT_SHARE: Final = 0.75
"""Share of an accepted length that later requests have at most."""
REPLY_SHARE: Final = 8
"""An eighth of a context is left for the reply, where nothing says how long that may be."""
_SAFE_SHARE: Final = 0.95
"""Share of the length that a refusal names, as the counts of both sides differ."""


class ShownLimit(dict[str, Any]):
    """How many tokens a model is shown at most, in the metadata of a reply from `ask`.

    It has a class of its own, as a provider may write anything under our key.
    """


class FittedRequest:
    """A request of a model, as long as the model takes it."""

    def __init__(
        self,
        model: BoundModel,
        messages: Sequence[BaseMessage],
        hidden: frozenset[str],
        view: View | None = None,
    ) -> None:
        self._model = model
        self._whole = messages
        # Ids of messages that the model is not shown.
        self._hidden = hidden
        self._view = view
        self._attempts = 0
        self._shown: Sequence[BaseMessage] | None = None
        self._limit = _find_stored_limit(messages, model.description.name)
        if self._limit:
            self._show(self._fit(self._limit))
        else:
            # What is sent.
            self.messages = model.requests.build(messages, hidden, view)

    def shorten(self, error: Exception) -> bool:
        """Show less after an error; return whether it was a refusal for length that this mends."""
        if self._attempts == MAX_ATTEMPTS or (refusal := read_length_refusal(error)) is None:
            return False
        tokens = count_cautiously(self._show_whole() if self._shown is None else self._shown)
        shorter = self._fit(self._choose_target(refusal, tokens))
        accepted = count_cautiously(shorter)
        if accepted >= tokens:
            # The instructions alone are too long.
            return False
        self._attempts += 1
        self._limit = max(1, int(accepted * KEPT_SHARE))
        self._show(shorter)
        return True

    def note_limit(self, reply: Any) -> Any:
        """Return a reply with the length that the next request has at most, if there is one."""
        if not self._limit or not isinstance(reply, AIMessage):
            return reply
        noted = ShownLimit(tokens=self._limit, model=self._model.description.name)
        metadata = {**reply.response_metadata, SHORTENED_KEY: noted}
        return reply.model_copy(update={"response_metadata": metadata})

    def _show_whole(self) -> Sequence[BaseMessage]:
        whole = leave_out_hidden(self._whole, self._hidden)
        return self._view.show_all(whole) if self._view else whole

    def _fit(self, limit: int) -> list[BaseMessage]:
        whole = self._show_whole()
        fitted = fit_messages(whole, limit, count_cautiously)
        return self._view.show_new(fitted, whole) if self._view else fitted

    def _show(self, messages: Sequence[BaseMessage]) -> None:
        self._shown = messages
        self.messages = self._model.requests.build(messages, self._hidden)

    def _choose_target(self, refusal: LengthRefusal, tokens: int) -> int:
        """Return how many tokens to show next, by our count."""
        half = tokens // 2
        if refusal.limit and refusal.requested:
            target = int(tokens * refusal.limit / refusal.requested * _SAFE_SHARE)
        elif limit := refusal.limit or self._read_profile():
            schemas = len(repr(self._model.arguments)) // BYTES_PER_TOKEN
            reply = getattr(self._model.model, "max_tokens", None)
            if not (isinstance(reply, int) and 0 < reply < limit):
                reply = limit // REPLY_SHARE
            target = limit - schemas - reply
        else:
            return half
        # What was named has not helped: the counts of both sides differ.
        return half if self._attempts or not 0 < target < tokens else target

    def _read_profile(self) -> int:
        profile = getattr(self._model.model, "profile", None)
        limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        return limit if isinstance(limit, int) else 0


def _find_stored_limit(messages: Sequence[BaseMessage], model: str) -> int:
    """Return the length that the latest reply of a model has stored; 0 for none."""
    for message in reversed(messages):
        if message.type != "ai":
            continue
        if SHORTENED_KEY in (metadata := message.response_metadata):
            noted = metadata[SHORTENED_KEY]
            is_own = isinstance(noted, Mapping) and noted.get("model") == model
            tokens = noted.get("tokens") if is_own else None
            return tokens if isinstance(tokens, int) and tokens > 0 else 0
        if is_from_model(metadata):
            return 0
    return 0
