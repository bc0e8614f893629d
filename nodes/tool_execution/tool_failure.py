"""The exception of a failed tool in the recorded answer of its call.

If a middleware wraps the call, it is raised again when the call is repeated from the journal, so
that a retry decides as it did the first time.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langchain_core.messages import ToolMessage

from echelons.identity.lineage import FAILURE_KEY
from echelons.text.error_lines import read_error_text


def note_failure(answer: ToolMessage, error: Exception) -> ToolMessage:
    """Return the answer of a failed call with the class of its exception, for its repetition."""
    kind = type(error)
    noted = {"class": f"{kind.__module__}:{kind.__qualname__}", "text": read_error_text(error)}
    metadata = {**answer.response_metadata, FAILURE_KEY: noted}
    return answer.model_copy(update={"response_metadata": metadata})


def find_failure(update: Any) -> Mapping[str, Any] | None:
    """Return what `note_failure` has noted in the update of a call, `None` for any other."""
    match update:
        case {"messages": [ToolMessage(response_metadata={**metadata})]}:
            noted = metadata.get(FAILURE_KEY)
            return noted if isinstance(noted, Mapping) else None
    return None


def remove_failure(update: Any) -> Any:
    """Return the update of a failed call without what `note_failure` has noted."""
    [answer] = update["messages"]
    metadata = {key: each for key, each in answer.response_metadata.items() if key != FAILURE_KEY}
    return {"messages": [answer.model_copy(update={"response_metadata": metadata})]}


def rebuild_exception(noted: Mapping[str, Any]) -> Exception:
    """Return a recorded exception, so that a wrap decides as it did when the tool raised it.

    Its class is looked up among the modules that are loaded; nothing is imported. It has the text
    as its only argument, and is not initialized, as its arguments are unknown.
    """
    module, _, name = str(noted.get("class")).partition(":")
    text = str(noted.get("text", ""))
    found: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if isinstance(found, type) and issubclass(found, Exception):
        with suppress(Exception):  # it may need more to be made
            error: Exception = found.__new__(found, text)
            error.args = (text,)
            return error
    return RuntimeError(f"{name}: {text}")
