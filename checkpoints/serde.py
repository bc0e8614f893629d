"""What may be stored and read back: an allowlist, always passed explicitly.

LangGraph's own default depends on an environment variable that it reads at import, so it
is never relied on.
"""

from __future__ import annotations

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

ALLOWED: tuple[tuple[str, str], ...] = ()
"""Types of ours that a stored byte may become; we store plain JSON, so there is none.

LangGraph adds its own safe list: messages, ``Send``, ``Interrupt``, dates, numbers, paths.
"""


def serializer() -> JsonPlusSerializer:
    """Return a serializer with which no stored byte can run code."""
    return JsonPlusSerializer(
        pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=ALLOWED
    )
