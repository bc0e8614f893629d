"""The root of the tree of errors: typed fields, and a message made of them."""

from __future__ import annotations

import copyreg
from dataclasses import Field, field
from inspect import Parameter, Signature, get_annotations
from reprlib import Repr
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform


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


SHORT = ShortRepr(200)
"""How much of a refused value a message shows."""
LONGEST_FIELD = 1000
"""Characters of any field that a message shows."""


class _MessageFormatter(Formatter):
    """`str.format` for messages: `{paths}` joins values, `{value:short}` shortens one.

    `{ids:each}` shortens each of several.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return SHORT.repr(value) if conversion == "r" else value

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "short":
            return SHORT.repr(value)
        if format_spec == "each":
            return ", ".join(map(SHORT.repr, value)) or "nothing"
        if format_spec == "quoted":
            return repr(str(value))
        if isinstance(value, tuple):
            return (format_spec or ", ").join(map(str, value)) or "none"
        shown = format(value, format_spec)
        # Such as a stored name that was damaged.
        return shown if len(shown) <= LONGEST_FIELD else f"{shown[: LONGEST_FIELD - 1]}…"


def escape_braces(text: str) -> str:
    """Return a text as a part of a message's template."""
    return text.replace("{", "{{").replace("}", "}}")


class _FieldSignature:
    """The signature of an error: a parameter for each field, computed when it is needed."""

    def __get__(self, _: object, owner: type[EchelonsError]) -> Signature:
        return Signature(
            [
                Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
                for name, kind in owner._get_fields().items()
                if not isinstance(default := getattr(owner, name, Parameter.empty), Field)
            ]
        )


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class EchelonsError(Exception):
    """The root of all errors of this library.

    The annotations of a subclass are its fields, as in a dataclass. Its message is the template
    `message`, filled with the fields, or what its `_describe` returns. A field that is no
    parameter, `field(init=False, default=...)`, is such a template too.
    """

    # `dataclass` would compile a constructor for each of a hundred classes at the import.
    __signature__ = _FieldSignature()
    message: ClassVar[str] = ""
    code: str = ""

    def __init__(self, *args: Any, **values: Any) -> None:
        fields = self._get_fields()
        if not fields:
            (text,) = args or ("",)
            vars(self).update(values)
            super().__init__(self._fill(text) if values else text)
            return
        bound = self.__signature__.bind(*args, **values)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            several = "Sequence[" in str(fields[name])
            setattr(self, name, tuple(value) if several else value)
        for name in fields:
            if isinstance(derived := getattr(type(self), name, None), Field):
                setattr(self, name, self._fill(str(derived.default)))
        super().__init__(self._describe())

    @classmethod
    def _get_fields(cls) -> dict[str, Any]:
        """Return the types of the fields; none where a subclass has its own constructor."""
        if cls.__init__ is not EchelonsError.__init__:
            return {}
        own = [each for each in reversed(cls.__mro__) if issubclass(each, EchelonsError)]
        kinds = {
            name: kind
            for each in own
            if each is not EchelonsError
            for name, kind in get_annotations(each).items()
        }
        return {name: kind for name, kind in kinds.items() if "ClassVar" not in str(kind)}

    def _describe(self) -> str:
        """Return the message: the value, the limit and the way out."""
        return self._fill(self.message)

    def _fill(self, template: str) -> str:
        return _MessageFormatter().vformat(template, (), vars(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would make a copy of the message alone, and an error is made of its fields.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def get_error_name(error: BaseException) -> str:
    """Return the name of an error in output, logs and stored reasons: of its code, or its class."""
    code = vars(error).get("code") if isinstance(error, EchelonsError) else None
    return "".join(map(str.capitalize, code.split("_"))) if code else type(error).__name__
