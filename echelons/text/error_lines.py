"""Texts made fit to be stored, sent and shown: sanitized output, and exceptions without secrets."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from traceback import TracebackException
from typing import Any, Final, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

from pydantic_core import to_jsonable_python

from echelons.errors import EchelonsError, get_error_name
from echelons.errors.base import ShortRepr

MAX_SANITIZED_DEPTH = 64
"""Maximum nesting of lists and mappings; msgpack takes 255, a model's provider far fewer."""
MAX_TEXT_LENGTH = 16 * 1024 * 1024
"""Maximum length of a string in characters; SQLite takes a billion bytes in a whole row."""
TOO_DEEP_NOTE = "[nested too deep]"
_SHORT_REPR = ShortRepr(60)


def sanitize_value(value: Any, depth: int = 0) -> Any:
    r"""Return a copy of JSON-like data that can be stored and sent.

    A surrogate pair becomes its character, a lone surrogate U+FFFD. Numbers of more than 64 bits
    become strings, and so do keys that JSON does not have. Data nested too deep, and the end of a
    string that is too long, are replaced by a note; `depth` is the number of lists and mappings
    around it.
    """
    # Every write passes through here, and nearly all values are of exactly these types:
    # comparing types is cheaper than `isinstance`.
    kind = type(value)
    if kind is str:
        return value if value.isascii() and len(value) <= MAX_TEXT_LENGTH else _sanitize_text(value)
    if kind is dict or kind is list:
        if depth >= MAX_SANITIZED_DEPTH:
            return TOO_DEEP_NOTE
        if kind is dict:
            clean: dict[Any, Any] = {}
            for key, entry in value.items():
                # Most keys are names, which need no call.
                fit = type(key) is str and key.isascii() and len(key) <= MAX_TEXT_LENGTH
                clean[key if fit else _sanitize_key(key)] = sanitize_value(entry, depth + 1)
            return clean
        return [sanitize_value(item, depth + 1) for item in value]
    if value is None or kind is bool or kind is float:
        return value
    return _sanitize_other(value, depth)


def sanitize_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as JSON; the same object if they are.

    Keys become texts, and so does what JSON does not have, but for `NaN` and the infinities: tools
    take those as they came.
    """
    try:
        if json.loads(json.dumps(arguments)) == arguments:
            return arguments
    except (TypeError, ValueError, RecursionError):
        pass
    clean = sanitize_value(arguments)
    try:
        plain = to_jsonable_python(
            clean, inf_nan_mode="constants", bytes_mode="base64", fallback=_SHORT_REPR.repr
        )
    except Exception as error:  # noqa: BLE001  an object's own code may raise anything
        return {"invalid_arguments": f"{type(error).__name__}: {_SHORT_REPR.repr(error)}"}
    whole: dict[str, Any] = sanitize_value(plain)
    return whole


def _sanitize_key(key: Any) -> Any:
    if key is None or isinstance(key, (str, int, float)):
        return sanitize_value(key)
    # No JSON has such a key: a tuple of numbers, or an object of a client.
    try:
        return _sanitize_text(str(key))
    except Exception:  # noqa: BLE001  an object's own `__str__` may fail
        return type(key).__name__


def _sanitize_other(value: Any, depth: int) -> Any:
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return value
        # `str` of an int fails beyond 4,300 decimal digits.
        return str(value) if value.bit_length() < 14_000 else hex(value)
    if isinstance(value, str):
        return _sanitize_text(value)
    if isinstance(value, Mapping):
        return sanitize_value(dict(value), depth)
    return sanitize_value(list(value), depth) if isinstance(value, tuple | list) else value


def _sanitize_text(text: str) -> str:
    if len(text) > MAX_TEXT_LENGTH:
        more = len(text) - MAX_TEXT_LENGTH
        text = f"{text[:MAX_TEXT_LENGTH]}\n[{more} characters more were left out]"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def join_printable(text: str) -> str:
    """Return a text on one line: unprintable characters and runs of spaces become one space."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


Redactor: TypeAlias = Callable[[str], str]
"""Returns a text without what must not be seen."""
REDACTED: Final = "[redacted]"
"""Stands for what was removed."""
FAILED_REDACTOR: Final = "[removed: the redactor failed]"
"""Stands for a whole text whose redactor raised an exception or returned no text."""
LONGEST_TEXT: Final = 256 * 1024
"""Characters of a text that are redacted; the rest is left out."""
LONGEST_ERROR: Final = 300
"""Characters of `describe_error`; logs and traces have the whole text."""
TRACEBACK_BYTES: Final = 64 * 1024
"""Bytes of `format_traceback`, in UTF-8."""
LONGEST_REASON: Final = 200
"""Characters of `describe_failure`."""
_LONGEST_ADDRESS = 100
_LEFT_OUT = b"\n[the middle was left out]\n"

_WORDS = r"pass(?:word|wd|phrase|code)|pwd|secret|credential|authorization|cookie"
_KEYS = r"access|auth|private|signing|encryption|account|shared|service|subscription|client"
_NAMES = (
    rf"(?:{_WORDS}|api[ _-]?key|api[_-]?token|(?:{_KEYS})[_-]?key(?![_-]?id)"
    r"|(?:access|auth|refresh|id|session|bearer|csrf|security|bot)[_-]?token)[\w-]{0,40}"
)
# As a word of a setting's name, also what means other things in a text: "key", "pass", "token".
_SECRET_WORD = re.compile(
    rf"\w*(?:(?:{_WORDS})s?|(?:api|{_KEYS})keys?|token)|keys?|auth|bearer|pass"
)
_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_QUOTE = r"\\*[\"'`]"
# A quoted value ends at its quote, another one at a space or a quote. All repetitions that a
# hostile text could make costly are bounded.
_VALUE = (
    rf"(?:(?:bearer|basic|digest|token)[ \t]{{1,8}})?"
    rf"(?:[bru]{{0,2}}(?P<quote>{_QUOTE})[\s\S]{{0,4096}}?(?P=quote)|[^\s\"'`<>]+|{_QUOTE}.*)"
)
# In the `repr` of a text, the letter of an escaped line end or tab comes before its next line.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_SECRETS: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # A PEM key, also one that is cut off, or has the margin of an exception group.
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,8}-----"
            r"(?:[\s\S]{0,8192}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,8}-----"
            r"|[\s\S]{0,8192})",
            REDACTED,
        ),
        # The user and password of an address: greedy, as a password may have an `@`.
        (r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#\"'<>]{1,1024}@", rf"\1{REDACTED}@"),
        (r"(?i)(\bcookie:)[^\n\"']*", rf"\1 {REDACTED}"),
        # Values by their names, in code, JSON, headers, queries and commands.
        (
            rf"(?i)({_NAMES}"
            rf"(?:{_QUOTE}\s{{0,8}}(?:,|=>|[:=])|(?: provided)?[ \t]{{0,8}}(?:=>|[:=]))"
            rf"\s{{0,8}}){_VALUE}",
            rf"\1{REDACTED}",
        ),
        (rf"(?i)(--{_NAMES}[ \t]{{1,8}}){_VALUE}", rf"\1{REDACTED}"),
        (rf"(?i)({_BEGIN}token{_QUOTE}\s{{0,8}}[:,]\s{{0,8}}){_VALUE}", rf"\1{REDACTED}"),
        (rf"(?i)({_BEGIN}(?:token|pass)[ \t]{{0,8}}=\s{{0,8}}){_VALUE}", rf"\1{REDACTED}"),
        # With a digit: "token: expected a bracket" is about a parser.
        (
            rf"(?i)({_BEGIN}(?:token|pass):[ \t]{{0,8}})(?=\S{{0,200}}\d){_VALUE}",
            rf"\1{REDACTED}",
        ),
        (
            rf"(?i)({_BEGIN}(?:password|passphrase) (?:is|was) )(?=\S{{0,200}}\d){_VALUE}",
            rf"\1{REDACTED}",
        ),
        (rf"(?i)([?&](?:key|sig|signature|code|auth)=){_VALUE}", rf"\1{REDACTED}"),
        # A word alone after "bearer" is no token: "bearer authentication failed".
        (
            rf"(?i){_BEGIN}(bearer|basic)([ \t]+)(?=\S{{0,200}}\d|\S{{16}})[\w.~+/=:-]{{6,}}",
            rf"\1\2{REDACTED}",
        ),
        # Keys by their shapes: OpenAI, Anthropic and alike; Stripe; GitHub; GitLab; Slack;
        # Google; AWS; Hugging Face, Groq, xAI, npm and PyPI; SendGrid; JSON web tokens.
        (rf"{_BEGIN}sk-[\w-]{{8,}}", REDACTED),
        (rf"{_BEGIN}[rsp]k_(?:live|test)_\w{{8,}}", REDACTED),
        (rf"{_BEGIN}(?:gh[a-z]_|github_pat_)\w{{16,}}", REDACTED),
        (rf"{_BEGIN}glpat-[\w-]{{16,}}", REDACTED),
        (rf"{_BEGIN}xox[a-z]-[\w-]{{8,}}", REDACTED),
        (rf"{_BEGIN}(?:AIza[\w-]{{30,}}|ya29\.[\w-]{{16,}}|GOCSPX-[\w-]{{16,}})", REDACTED),
        (rf"{_BEGIN}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Za-z0-9])", REDACTED),
        (rf"{_BEGIN}(?:hf_|gsk_|xai-|npm_|pypi-)[\w-]{{16,}}", REDACTED),
        (rf"{_BEGIN}(?<!-)(?<!_)SG\.[\w-]{{16,}}\.[\w-]{{16,}}", REDACTED),
        (rf"{_BEGIN}(?<!-)(?<!_)eyJ[\w-]{{8,}}\.[\w-]{{8,}}(?:\.[\w-]*)?", REDACTED),
    )
)


SHORTEST_SECRET: Final = 8
"""Fewest characters of a value that is removed wherever it stands."""
_REMEMBERED: Final = 1_000
# A name such as `SSL_KEY_FILE` says where something is, or of what kind.
_HARMLESS_ENDS: Final = (
    "file path dir directory folder sock socket id name url uri host type kind algorithm version "
    "length size count limit timeout ttl prefix mode format policy"
)
# Values that stand for none, or are words of any text.
_COMMON_WORDS: Final = (
    "anonymous authorization automatic basicauth changeme change-me credential credentials default "
    "defaults disabled enabled example-key external internal localhost not-needed optional "
    "password passphrase placeholder production development required secretkey sometimes standard "
    "supersecret testing undefined unlimited unspecified username your-api-key"
)
_given_secrets: OrderedDict[str, None] = OrderedDict()


def remember_secrets(settings: Mapping[str, Any]) -> None:
    """Let `redact_secrets` remove the values of settings with secret names in this process."""
    for value in _list_secrets(settings):
        _given_secrets[value] = None
        while len(_given_secrets) > _REMEMBERED:
            _given_secrets.popitem(last=False)


def _list_secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if not (isinstance(value, str) and isinstance(name, str) and names_secret_value(name)):
            continue
        # One text is a common word with any of these around it.
        is_word = value.strip("\"'<>.!").lower() in _COMMON_WORDS.split()
        if len(value) >= SHORTEST_SECRET and not is_word and not value.isspace():
            yield value


@lru_cache(maxsize=1024)
def names_secret_value(name: str) -> bool:
    """Return whether a setting has a secret, and not where one is, or of what kind.

    Examples:
        >>> names_secret_value("DB_PASSWORD"), names_secret_value("SSL_KEY_FILE")
        (True, False)
    """
    words = [word.lower() for word in _WORD_END.split(name) if word]
    return is_secret_name(name) and words[-1] not in _HARMLESS_ENDS.split()


@lru_cache(maxsize=8)
def _build_secret_pattern(values: frozenset[str]) -> re.Pattern[str]:
    forms = {form for value in values for form in _list_forms(value)}
    # The longest first: one may begin another.
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _list_forms(value: str) -> Iterator[str]:
    """Yield a value as it is, as a part of a URL, and what base64 makes of it in any text."""
    data = value.encode("utf-8", "surrogateescape")
    yield from (value, quote(data, safe=""), quote(data), quote_plus(data))
    for before in range(3):
        # Of the characters at both ends, some bits are those of what is around it.
        first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:end]


def redact_secrets(text: str) -> str:
    """Return a text without known secrets, and without what looks like a key or a password.

    Known are the values of eight characters or more of environment variables and of a session's
    settings with secret names, also in URLs and in base64. Beside them, values are removed by their
    names (`password=…`, `api_key: …`), bearer tokens, credentials in addresses, private keys in
    PEM, JSON web tokens, and keys in the shapes of OpenAI, AWS, GitHub, Google and other services.
    A secret that looks like an ordinary word is not recognised.

    Examples:
        >>> redact_secrets("401 from https://me:hunter2@example.com, api_key: abc")
        '401 from https://[redacted]@example.com, api_key: [redacted]'
    """
    if values := frozenset((*_list_secrets(os.environ), *_given_secrets)):
        text = _build_secret_pattern(values).sub(REDACTED, text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether a setting is a secret by a word of its name, such as `api_key`."""
    return any(_SECRET_WORD.fullmatch(word.lower()) for word in _WORD_END.split(name))


def apply_redactor(redactor: Redactor, text: str) -> str:
    """Return a redacted text that can be stored; a note in its place if the redactor fails."""
    try:
        # The class's method: a text of a class of the user's may be anything but a plain one.
        redacted = str.__str__(redactor(text[:LONGEST_TEXT]))
    except Exception:  # noqa: BLE001  a user's redactor may raise or return anything
        return FAILED_REDACTOR
    more = len(text) - LONGEST_TEXT
    note = f"\n[{more} characters more were left out]" if more > 0 else ""
    return str(sanitize_value(redacted + note))


def describe_error(error: BaseException, redactor: Redactor = redact_secrets) -> str:
    r"""Return an exception's type and the first line of its text, without a traceback.

    The line of a connection that failed ends with the address of the server.
    """
    # Redacted before it is cut: half a secret looks like none.
    whole = apply_redactor(redactor, read_error_text(error)).strip()
    first = next(iter(whole.splitlines()), "")
    name = get_error_name(error)
    text = f"{name}: {first}" if first else name
    if address := apply_redactor(redactor, find_server(error)):
        text = f"{_shorten_line(text, LONGEST_ERROR - len(address) - 3)} ({address})"
    return _shorten_line(text, LONGEST_ERROR)


def read_error_text(error: BaseException) -> str:
    """Return the text of an exception, also of one that has none."""
    try:
        return str.__str__(str(error))
    except Exception:  # noqa: BLE001  code of others: its `__str__` may fail too
        return "its text cannot be read"


def format_traceback(error: BaseException, redactor: Redactor = redact_secrets) -> str:
    """Return an exception's traceback without the values of variables.

    It has the causes, the notes and the exceptions of a group. Of one longer than 64 KiB, the
    middle is left out.
    """
    try:
        whole = "".join(TracebackException.from_exception(error).format()).rstrip()
    except Exception:  # noqa: BLE001  code of others: the exception, or a cause, cannot be read
        whole = f"the traceback of {type(error).__name__} cannot be read"
    stored = apply_redactor(redactor, whole).encode()
    if len(stored) > TRACEBACK_BYTES:
        end = TRACEBACK_BYTES // 4 * 3 - len(_LEFT_OUT)
        stored = stored[: TRACEBACK_BYTES // 4] + _LEFT_OUT + stored[-end:]
    return stored.decode(errors="ignore")


def describe_failure(error: BaseException, code: str, redactor: Redactor = redact_secrets) -> str:
    """Return why someone else's code failed, in one line; `code` is that of our error for it.

    Raises:
        BaseException: `error` itself, if it is not a failure of that code: a cancellation, a
            signal of the surrounding graph, or another error of ours, such as a missing key.
    """
    # LangGraph interrupts with exceptions. The domain does not import it, hence the name.
    signal = any(cls.__name__ == "GraphBubbleUp" for cls in type(error).__mro__)
    ours = isinstance(error, EchelonsError) and error.code != code
    if signal or ours or not isinstance(error, Exception):
        raise error
    text = apply_redactor(redactor, read_error_text(error))
    line = f"{get_error_name(error)}: {join_printable(text[: 2 * LONGEST_REASON])}"
    return _shorten_line(line.rstrip(), LONGEST_REASON)


def find_server(error: BaseException) -> str:
    """Return the address of the server that gave no response to a request; else an empty text.

    HTTP clients attach the request to their exceptions, and seldom name it in the text.
    """
    try:
        if getattr(error, "response", None) is not None:
            return ""
        url = urlsplit(str(error.request.url))  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  most have none, httpx raises if there is none, others anything
        return ""
    # Neither a user's password nor a query, which may hold a key.
    server = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return server if url.netloc and len(server) <= _LONGEST_ADDRESS else ""


def note_server(error: BaseException, server: str) -> None:
    """Note with an exception the address of a request, which clients leave out of its text."""
    error.add_note(f"the request was for {server}")


def _shorten_line(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
