"""The root of the tree of errors: typed fields, and a message made of them.

Every other file of the package imports this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import get_annotations
from reprlib import Repr
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 200
"""How much of a refused value a message shows."""


class _Template(Formatter):
    """`str.format` for messages: `{paths}` joins values, `{value:short}` shortens one."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "short":
            return SHORT.repr(value)
        if format_spec == "quoted":
            return repr(str(value))
        if isinstance(value, tuple):
            return (format_spec or ", ").join(map(str, value)) or "none"
        return format(value, format_spec)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class EchelonsError(Exception):
    """The root of all errors of this library.

    A subclass that annotates fields becomes a dataclass of them. Its message is the template
    `message`, filled with the fields, or what its `_describe` returns.
    """

    message: ClassVar[str] = ""
    _sequences: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = get_annotations(cls)
        if annotations:
            found = (name for name, kind in annotations.items() if kind.startswith("Sequence"))
            cls._sequences = (*cls._sequences, *found)
            # The `repr` and equality of exceptions stay: they are compared by identity.
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        for name in self._sequences:
            setattr(self, name, tuple(getattr(self, name)))
        super().__init__(self._describe())

    def _describe(self) -> str:
        """Return the message: the value, the limit and the way out."""
        return _Template().vformat(self.message, (), vars(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would make a copy of the message alone, and an error is made of its fields.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(
    kind: type[EchelonsError], args: tuple[Any, ...], fields: dict[str, Any]
) -> EchelonsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error
