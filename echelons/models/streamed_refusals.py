"""`keep_refusals`: a model of OpenAI's protocol whose streamed replies keep the words of a refusal.

The protocol has them in a field of their own, which LangChain's client reads of whole replies and
drops of streamed ones: the reply would look empty.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any, TypeVar

M = TypeVar("M")
_CONVERT = "_convert_chunk_to_generation_chunk"


def keep_refusals(model: M) -> M:
    """Return a copy of a model of OpenAI's protocol; any other model as it is.

    The copy shares the client and all settings; the caller's object is not changed.
    """
    kind: Any = type(model)
    if not hasattr(kind, _CONVERT):
        return model
    try:
        kept = copy(model)
        object.__setattr__(kept, "__class__", _derive_class(kind))
    except Exception:  # noqa: BLE001  a model of someone's own need not be copied
        return model
    return kept


@cache
def _derive_class(kind: type[Any]) -> type[Any]:
    convert = getattr(kind, _CONVERT)

    def convert_chunk(self: Any, chunk: Any, *args: Any, **kwargs: Any) -> Any:
        generation = convert(self, chunk, *args, **kwargs)
        if generation is not None and (refusal := _read_refusal(chunk)):
            generation.message.additional_kwargs["refusal"] = refusal
        return generation

    # Of the same name and module: both stand in traces and in serialised models.
    attributes = {_CONVERT: convert_chunk, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), attributes)


def _read_refusal(chunk: Any) -> str:
    """Return the refusal of a chunk of a stream, empty without one."""
    try:
        choices = chunk.get("choices") or chunk.get("chunk", {}).get("choices") or []
        refusal = choices[0]["delta"].get("refusal")
    except (AttributeError, IndexError, KeyError, TypeError):
        return ""
    return refusal if isinstance(refusal, str) else ""
