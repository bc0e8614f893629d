"""`settings.toml`: the fields of an `Agent` that are data, with the line of each fault.

Which fields there are, and of which types, is read from `Agent` itself.
"""

from __future__ import annotations

import builtins
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_type_hints

from echelons.agent import Agent
from echelons.capabilities.capability import Capability, check_capabilities
from echelons.errors import EchelonsError, InvalidSetting
from echelons.profiles.source_files import FolderReader, SourceFile
from echelons.settings import Settings
from echelons.text.input_limits import shorten_repr
from echelons.text.toml_lines import describe_toml_fault, find_key_line

NAMED_FIELDS = ("tools", "middleware", "subordinates")
"""Fields that are lists of names: of what `default` declares, and of the agent's subfolders."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings of a profile.

    Attributes:
        source: The file.
        values: The fields of an `Agent` by name, checked one by one.
        names: The names that `tools`, `middleware` and `subordinates` list.
    """

    source: SourceFile
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def find_line(self, *keys: str) -> int:
        """Return the line of a key, or of the table that it would stand in; 0 for neither."""
        return find_key_line(self.source.text, *keys)


def read_settings(source: SourceFile, reader: FolderReader) -> SettingsFile | None:
    """Return the settings of a file without those that are wrong; `None` if it is no TOML."""
    try:
        table = tomllib.loads(source.text)
    except (ValueError, RecursionError) as error:  # a number may have too many digits
        line, why = describe_toml_fault(error, source.text)
        reader.add_fault(source.name, line, type(error).__name__, why)
        return None
    return _SettingsCheck(SettingsFile(source), reader).check(table)


@dataclass(slots=True)
class _SettingsCheck:
    """Checks each value by itself, so that all faults are found and not only the first."""

    file: SettingsFile
    reader: FolderReader

    def check(self, table: Mapping[str, Any]) -> SettingsFile:
        values: dict[str, Any] = {}
        names: dict[str, tuple[str, ...]] = {}
        kinds = get_field_types()
        for key, value in table.items():
            kind = kinds.get(key)
            if key not in kinds:
                self._refuse_key((key,), kinds, "an agent has")
            elif key in NAMED_FIELDS:
                names[key] = self._check_names((key,), value)
            elif kind is not None and isinstance(value, dict):
                values.update(self._check_table(key, kind, value))
            elif key == "capabilities" and isinstance(value, dict):
                values[key] = dict(self._check_capabilities(value))
            elif self._try((key,), lambda: Agent(**{"name": "agent", key: value})):  # noqa: B023
                values[key] = value
        return SettingsFile(self.file.source, values, names)

    def _check_table(
        self, key: str, kind: type[Settings], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return an object of the settings by its field; nothing if a value is wrong."""
        good = True
        for name, value in table.items():
            if name not in kind.model_fields:
                self._refuse_key((key, name), kind.model_fields, f"{key} has")
                good = False
            else:
                good &= self._try((key, name), lambda: kind(**{name: value}))  # noqa: B023
        # Values that are right by themselves may not fit together.
        return {key: kind(**table)} if good and self._try((key,), lambda: kind(**table)) else {}

    def _check_capabilities(self, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():

            def make(name: str = name, value: Any = value) -> Capability:
                full = value
                if isinstance(value, dict):
                    unknown = [each for each in value if each not in Capability.model_fields]
                    for each in unknown:
                        why = f"a capability has {', '.join(Capability.model_fields)}"
                        raise InvalidSetting("Capability", each, value[each], why)
                    full = Capability(value.get("confidence", 1.0), value.get("examples", ()))
                return check_capabilities("", {name: full}).full[name]

            if self._try(("capabilities", name), make):
                yield name, make()

    def _check_names(self, keys: tuple[str, ...], value: Any) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        why = (
            f"{'.'.join(keys)} = {shorten_repr(value)} is no list of names, such as ['one', 'two']"
        )
        self.reader.add_fault(
            self.file.source.name, self.file.find_line(*keys), "InvalidField", why
        )
        return ()

    def _refuse_key(self, keys: tuple[str, ...], known: Mapping[str, Any], owner: str) -> None:
        close = get_close_matches(keys[-1], known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        why = f"there is no setting {'.'.join(keys)!r}; {meant}{owner} {', '.join(known)}"
        self.reader.add_fault(self.file.source.name, self.file.find_line(*keys), "UnknownKey", why)

    def _try(self, keys: tuple[str, ...], make: Callable[[], object]) -> bool:
        """Return whether a value can be used; else note why not."""
        try:
            make()
        except EchelonsError as error:
            inner = getattr(error, "setting", "").split(".")
            line = self.file.find_line(*keys, *inner)
            why = str(error).removeprefix("agent 'agent': ")
            self.reader.add_fault(self.file.source.name, line, type(error).__name__, why)
            return False
        return True


@cache
def get_field_types() -> Mapping[str, type[Settings] | None]:
    """Return the fields of an `Agent` that are data, with the class of those that are tables."""
    module = vars(sys.modules[Agent.__module__])

    class Unknown:
        """What is imported for type checkers alone, which is no class of ours."""

        __class_getitem__ = classmethod(lambda cls, _: cls)

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return module.get(name, getattr(builtins, name, Unknown))

    hints = get_type_hints(Agent, localns=Names())
    found: dict[str, type[Settings] | None] = {}
    for each in fields(Agent):
        if each.init:
            kinds = (hints[each.name], *get_args(hints[each.name]))
            tables = [kind for kind in kinds if isinstance(kind, type)]
            found[each.name] = next((kind for kind in tables if issubclass(kind, Settings)), None)
    return found
