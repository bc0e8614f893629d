"""The root of the errors: a code, fields, and a message that is filled with them."""

from __future__ import annotations

import copyreg
from reprlib import Repr
from string import Formatter
from typing import TYPE_CHECKING, Any


class ShortRepr(Repr):
    """The `repr` of any value, shortened, also of one that has none; `length` in characters."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = length

    def repr(self, x: Any) -> str:
        """Return the shortened `repr` of a value."""
        try:
            return super().repr(x)
        except Exception:  # noqa: BLE001  code of others; so does that of a huge int
            return f"a value of type {type(x).__name__}"


_SHORT = ShortRepr(200)
_LONGEST_FIELD = 1000


class _MessageFormatter(Formatter):
    """`str.format` for messages: a value is shown in at most 200 characters, a text in 1,000.

    `{paths}` joins the texts of a tuple, `{ids:each}` its values; `{value:short}` is `{value!r}`.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return _SHORT.repr(value) if conversion == "r" else value

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "short":
            return _SHORT.repr(value)
        if format_spec == "each":
            return ", ".join(map(_SHORT.repr, value)) or "nothing"
        if format_spec == "quoted":
            return repr(str(value))
        if isinstance(value, tuple):
            return (format_spec or ", ").join(map(str, value)) or "none"
        shown = format(value, format_spec)
        # Such as a stored name that was damaged.
        return shown if len(shown) <= _LONGEST_FIELD else f"{shown[: _LONGEST_FIELD - 1]}…"


class EchelonsError(Exception):
    """The root of all errors of this library.

    Args:
        text: The message; if there are fields, a template that is filled with them.
        code: What is wrong, if it is not what the class says by itself.
        fields: The facts, which become attributes.

    Attributes:
        code: A stable name of what is wrong, such as `"invalid_name"`.

    Examples:
        >>> error = EchelonsError("{name!r} has no port", code="no_port", name="localhost")
        >>> str(error), error.code, error.name
        ("'localhost' has no port", 'no_port', 'localhost')
    """

    code: str = "echelons_error"

    def __init__(self, text: str = "", /, **fields: Any) -> None:
        # Not through `setattr`: a subclass of a user's may have properties of these names.
        vars(self).update(fields)
        super().__init__(_MessageFormatter().vformat(text, (), fields) if fields else text)

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the constructor with the finished message alone.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def escape_braces(text: str) -> str:
    """Return a text as a part of the template of a message."""
    return text.replace("{", "{{").replace("}", "}}")


def get_error_name(error: BaseException) -> str:
    """Return the name of an error in output and stored texts: of its code, or its class."""
    code = vars(error).get("code") if isinstance(error, EchelonsError) else None
    return "".join(map(str.capitalize, code.split("_"))) if code else type(error).__name__
