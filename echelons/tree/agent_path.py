"""`AgentPath`: the one name of an agent in its tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Self

from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class AgentPath(str):
    """The path of an agent: the names from the root of its tree down to it, joined by `/`.

    It is a text, and equal to the same text. Earlier versions gave the names as a tuple: to index
    or iterate it raises a `TypeError`, as either would give letters.

    Args:
        path: The path as a text, or its names.

    Examples:
        >>> path = AgentPath("head") / "experiences" / "restaurants"
        >>> path
        'head/experiences/restaurants'
        >>> path.parts, path.name, path.parent
        (('head', 'experiences', 'restaurants'), 'restaurants', 'head/experiences')
    """

    __slots__ = ()

    def __new__(cls, path: str | Iterable[str] = "") -> Self:
        """Make a path of a text, or of names."""
        text = path if isinstance(path, str) else PATH_SEPARATOR.join(path)
        return super().__new__(cls, text)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names, the root's first."""
        return tuple(self.split(PATH_SEPARATOR)) if self else ()

    @property
    def name(self) -> str:
        """The name of the agent itself."""
        return self.rpartition(PATH_SEPARATOR)[2]

    @property
    def parent(self) -> AgentPath:
        """The path of its superior; empty for a root."""
        return AgentPath(self.rpartition(PATH_SEPARATOR)[0])

    def __truediv__(self, below: str) -> AgentPath:
        """Return the path of an agent below it, by its name or by the path from here."""
        return AgentPath(f"{self}{PATH_SEPARATOR}{below}" if self else below)

    def __iter__(self) -> NoReturn:
        """Refuse to iterate letters."""
        raise _list_parts()

    def __getitem__(self, place: Any) -> NoReturn:
        """Refuse to return letters."""
        raise _list_parts()

    def __reduce__(self) -> tuple[type[AgentPath], tuple[str]]:
        return AgentPath, (str(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read a text or a list of names; store a list, as earlier versions did."""
        from pydantic_core import core_schema

        names = core_schema.list_schema(core_schema.str_schema(strict=True))
        schema = core_schema.union_schema(
            [
                core_schema.str_schema(strict=True),
                names,
                core_schema.tuple_variable_schema(core_schema.str_schema(strict=True)),
            ]
        )
        return core_schema.no_info_after_validator_function(
            cls,
            schema,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _list_names, when_used="json"
            ),
        )


def _list_names(path: AgentPath) -> list[str]:
    return [*path.parts]


def _list_parts() -> TypeError:
    return TypeError("an AgentPath is a text; the names of its agents are in `.parts`")
