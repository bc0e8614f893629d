"""Removes what looks like a key or a password from the texts of exceptions.

A redactor is any function from text to text. `redact_secrets` is the default; `apply_redactor`
calls any of them so that a broken one lets nothing through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from echelons.text.sanitize import sanitize_value

Redactor: TypeAlias = Callable[[str], str]
"""Returns a text without what must not be seen."""
REDACTED: Final = "[redacted]"
"""Stands for what was removed."""
FAILED_REDACTOR: Final = "[removed: the redactor failed]"
"""Stands for a whole text whose redactor raised an exception or returned no text."""
LONGEST_TEXT: Final = 256 * 1024
"""Characters of a text that are redacted; the rest is left out."""

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


def redact_secrets(text: str) -> str:
    """Return a text without what looks like a key or a password.

    Removed are values by their names (`password=…`, `api_key: …`), bearer tokens, credentials in
    addresses, private keys in PEM, JSON web tokens, and keys in the shapes of OpenAI, AWS, GitHub,
    Google and other services. A secret that looks like an ordinary word is not recognised.

    Examples:
        >>> redact_secrets("401 from https://me:hunter2@example.com, api_key: abc")
        '401 from https://[redacted]@example.com, api_key: [redacted]'
    """
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
