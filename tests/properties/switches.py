"""The places at which odd replies and results are mended, so that a test can switch each off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from echelons.models import bound_model, request_content, request_messages
from echelons.nodes import messages
from echelons.nodes.planning import reply_handler
from echelons.text import content_blocks

WRITER = request_messages._Writer


class Mending(NamedTuple):
    """A function, a class or a value, and what takes its place where nothing is mended."""

    owner: Any
    name: str
    without: Any

    def switch_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mend nothing there until the test has ended."""
        monkeypatch.setattr(self.owner, self.name, self.without)


class Anything:
    """A pattern that matches everything, and is found nowhere."""

    def fullmatch(self, text: str) -> bool:
        return True

    def search(self, text: str) -> bool:
        return False


def keep(value: Any, *more: Any, **options: Any) -> Any:
    """Return what is not mended."""
    return value


def keep_second(_: Any, value: Any, *more: Any) -> Any:
    """Return what a method does not mend."""
    return value


WAY_OUT: Mapping[str, Mending] = {
    "names": Mending(request_messages, "NAME", Anything()),
    "ids": Mending(request_messages, "CALL_ID", Anything()),
    "person names": Mending(request_content, "ILLEGAL_IN_NAME", Anything()),
    "arguments": Mending(request_messages, "fit_args", keep),
    "values in arguments": Mending(request_content, "fit_json", keep),
    "arguments in blocks": Mending(request_content, "_is_json_object", lambda text: True),
    "text of an empty reply": Mending(request_content, "NO_TEXT", ""),
    "first and last": Mending(request_messages, "_add_user_turns", keep),
    "files that a client cannot send": Mending(
        request_content, "_can_send", lambda block, rules: True
    ),
    "blank texts": Mending(request_content, "_is_blank", lambda block: False),
    "empty replies": Mending(request_messages, "has_no_text", lambda content: False),
    "unanswered calls": Mending(
        request_messages, "match_results", lambda found, calls, renamed: ([], list(found))
    ),
    "blocks of replies": Mending(request_messages, "takes_block", lambda *_: True),
    "blocks of replies as a whole": Mending(
        WRITER, "_fit_reply_blocks", lambda self, said, *_: said.content
    ),
    "blocks of calls": Mending(request_messages, "fit_call_block", keep),
    "results": Mending(request_messages, "fit_result_content", keep),
    "ids that were used": Mending(WRITER, "_make_id", keep_second),
    "messages of users": Mending(request_messages, "fit_message", keep),
    "replies": Mending(WRITER, "_fit_reply", keep_second),
}
"""On the way out, in the pure function."""
ENTRANCE: Mapping[str, Mending] = {
    "lone surrogates": Mending(messages, "sanitize_value", keep),
    "keys that are no texts": Mending(messages, "sanitize_arguments", keep),
    "missing and doubled ids": Mending(reply_handler, "assign_call_ids", keep),
    "objects in texts": Mending(reply_handler, "adopt_written_arguments", keep),
    "replies that a client cannot read": Mending(
        bound_model, "read_unreadable", lambda error: None
    ),
    "refusals in streams": Mending(bound_model, "read_streams", keep),
    "pictures that no model takes": Mending(
        content_blocks, "_find_picture_fault", lambda block: ""
    ),
    "values that JSON does not have": Mending(messages, "make_json", keep),
}
"""Where replies and results arrive."""
PAST_TOOL = {
    "a tool for the history": Mending(
        bound_model.BoundModel, "_declare_past_tool", lambda self: {}
    ),
}
