"""A table of rules, and what several of them share: names, ids, JSON, pictures."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]
Rules: TypeAlias = Mapping[str, Callable[[Any], Iterator[str]]]
"""Rules by their names: each yields what is wrong with a request."""

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
PERSON_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
MAX_DESCRIPTION: Final = 1024  # characters, of a tool
MAX_TOOLS: Final = 128
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def find_fault(rules: Rules, request: Any) -> str:
    """Return what the first rule says that a request breaks; empty if it breaks none.

    Examples:
        >>> from echelons.testing.provider_rules import CHAT_RULES
        >>> find_fault(CHAT_RULES, {"messages": [{"role": "user", "content": "Hello"}]})
        ''
        >>> find_fault(CHAT_RULES, {"messages": [{"role": "assistant", "content": None}]})
        'empty_reply: messages[0] of the assistant has neither content nor calls'
    """
    for name, check in rules.items():
        try:
            for fault in check(request):
                return f"{name}: {fault}"
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return f"{name}: the request is malformed: {type(error).__name__}: {error}"
    return ""


def find_json_fault(value: Any) -> str:
    """Return why a value is no JSON that a server can read; empty if it is."""
    if isinstance(value, str):
        return "a lone surrogate" if not value.isascii() and _has_surrogate(value) else ""
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            return f"the key {odd[0]!r} is no text"
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return next(filter(None, map(find_json_fault, value)), "")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def check_json(body: Json) -> Iterator[str]:
    """Yield why the body of a request is no JSON."""
    if fault := find_json_fault(body):
        yield f"the body is no JSON: {fault}"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def find_arguments_fault(text: Any) -> str:
    """Return why a text is no JSON object; empty if it is one."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (TypeError, ValueError):
        return f"no valid JSON: {str(text)[:60]!r}"
    return "" if isinstance(value, dict) else f"no JSON object: {str(text)[:60]!r}"


def _refuse_constant(word: str) -> None:
    raise ValueError(word)


def find_picture_fault(kind: Any, data: Any) -> str:
    """Return why a picture is refused, by its type and its data in base64."""
    if kind not in PICTURES:
        return f"the type {kind!r} of a picture is not supported"
    return find_data_fault(data)


def find_data_fault(data: Any) -> str:
    """Return why data is no base64; empty if it is."""
    try:
        return "" if base64.b64decode(data, validate=True) else "the data is empty"
    except (binascii.Error, TypeError, ValueError):
        return "the data is no valid base64"


def find_file_fault(file: Json) -> str:
    """Return why OpenAI refuses a file within a request; empty if it does not."""
    match = DATA_URL.fullmatch(file.get("file_data") or "")
    if not file.get("filename") or not match:
        return "a file needs its name and its data"
    return find_data_fault(match[2])


def find_url_fault(url: Any) -> str:
    """Return why the address of a picture is refused."""
    if not isinstance(url, str):
        return "the url of a picture is no text"
    if match := DATA_URL.fullmatch(url):
        return find_picture_fault(*match.groups())
    return "" if url.startswith(("https://", "http://")) else f"the url {url[:60]!r} is invalid"


def is_blank(text: Any) -> bool:
    """Return whether a text is empty or only whitespace; anything but a text counts as blank."""
    return not isinstance(text, str) or not text.strip()


def find_function_faults(place: str, functions: Iterable[Json]) -> Iterator[str]:
    """Yield why OpenAI refuses the functions among the tools of a request."""
    names: set[str] = set()
    for function in functions:
        name = function["name"]
        if not TOOL_NAME.fullmatch(name):
            yield f"Invalid '{place}.name': {name[:80]!r}"
        if name in names:
            yield f"the tool {name!r} is declared twice"
        names.add(name)
        if len(function.get("description") or "") > MAX_DESCRIPTION:
            yield f"the description of {name!r} has more than {MAX_DESCRIPTION:,} characters"


def find_count_fault(tools: Sequence[Json]) -> str:
    """Return why OpenAI refuses the number of tools of a request; empty if it does not."""
    return f"more than {MAX_TOOLS} tools" if len(tools) > MAX_TOOLS else ""
