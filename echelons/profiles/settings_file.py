"""The files of a profile, `settings.toml` first, read once, with the line of each fault."""

from __future__ import annotations

import builtins
import hashlib
import os
import stat
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from echelons.agent import Agent
from echelons.capabilities.capability import Capability, check_capabilities
from echelons.errors import ConfigurationError, EchelonsError, InvalidSetting, get_error_name
from echelons.prompts import GUIDANCE_PARTS
from echelons.settings import Settings
from echelons.text.input_limits import shorten_repr
from echelons.text.toml_lines import describe_toml_fault, find_key_line
from echelons.tree.name_themes import THEMES, NameTheme


class Fault(NamedTuple):
    """One thing that is wrong with a profile."""

    file: str
    line: int
    error: str
    why: str

    @property
    def place(self) -> str:
        """The file with its line."""
        return f"{self.file}:{self.line}" if self.line else self.file


MAX_FILE_BYTES = 1024 * 1024
"""Largest file of a profile, in bytes."""


class SourceFile(NamedTuple):
    """The text of a file."""

    path: Path
    name: str
    text: str

    @property
    def digest(self) -> str:
        """A digest of the text, equal on every machine."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class FolderEntries(NamedTuple):
    """The entries of a folder, in the order of their names."""

    folders: list[Path]
    files: list[Path]
    whole: bool = True


@dataclass(slots=True)
class FolderReader:
    """Reads what is in a team's folder, and notes what cannot be read."""

    root: Path
    faults: list[Fault] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """Return a path from the team's folder on."""
        return path.relative_to(self.root).as_posix()

    def add_fault(self, path: Path | str, line: int, error: str, why: str) -> None:
        """Note a fault of a file, given by its path or its name."""
        name = path if isinstance(path, str) else self.name(path)
        self.faults.append(Fault(name, line, error, why))

    def list_folder(self, folder: Path, parents: frozenset[Path] = frozenset()) -> FolderEntries:
        """Return the entries of a folder; those that lead out of the team's folder are left out."""
        result = FolderEntries([], [])
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            self._refuse_unreadable(folder, error)
            return result._replace(whole=False)
        for entry in entries:
            path = folder / entry.name
            if entry.is_symlink() and not self._may_follow(path, parents):
                result = result._replace(whole=False)
                continue
            (result.folders if entry.is_dir() else result.files).append(path)
        return result

    def read_file(self, path: Path) -> SourceFile | None:
        """Return a file's text; `None` if it cannot be read."""
        try:
            # What is no plain file, such as a pipe, may never end.
            if not stat.S_ISREG(path.stat().st_mode):
                self.add_fault(path, 0, "InvalidFile", "it is no plain file; put one in its place")
                return None
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._refuse_unreadable(path, error)
            return None
        if len(data) > MAX_FILE_BYTES:
            size = path.stat().st_size
            why = f"it has {size} bytes, and a file of a profile at most {MAX_FILE_BYTES}"
            self.add_fault(path, 0, "FileTooLarge", f"{why}: shorten it")
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            why = f"byte {data[error.start]:#04x} is no UTF-8: save the file as UTF-8"
            self.add_fault(path, line, "UnicodeDecodeError", why)
            return None
        return SourceFile(path, self.name(path), text.replace("\r\n", "\n"))

    def read_named_file(self, folder: Path, name: str, place: tuple[str, int]) -> SourceFile | None:
        """Return the text of a file that a setting names; `None` if it cannot be read."""
        try:
            path = (folder / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.add_fault(*place, "UnknownFile", f"{name!r} cannot be read: {reason}")
            return None
        if not path.is_relative_to(self.root):
            why = f"{name!r} is out of the team's folder: copy it into the folder"
            self.add_fault(*place, "OutsideFolder", why)
            return None
        return self.read_file(path)

    def _may_follow(self, link: Path, parents: frozenset[Path]) -> bool:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            self._refuse_unreadable(link, error)
            return False
        if not target.is_relative_to(self.root):
            why = f"it is a link to {str(target)!r}, out of the team's folder: copy it instead"
            self.add_fault(link, 0, "OutsideFolder", why)
            return False
        if target in parents:
            why = f"it is a link to {self.name(target)!r}, which it lies in: remove it"
            self.add_fault(link, 0, "CyclicTree", why)
            return False
        return True

    def _refuse_unreadable(self, path: Path, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        self.add_fault(path, 0, type(error).__name__, f"it cannot be read: {reason}")


NAMED_FIELDS = ("tools", "middleware", "subordinates")
"""Fields that are lists of names: of what `default` declares, and of the agent's subfolders."""
TYPED_FIELDS = ("contract", "response_format")
"""Fields that are classes of Python, and no data."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings of a profile."""

    source: SourceFile
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    theme: SourceFile | None = None

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
    theme: SourceFile | None = None

    def check(self, table: Mapping[str, Any]) -> SettingsFile:
        values: dict[str, Any] = {}
        names: dict[str, tuple[str, ...]] = {}
        kinds = get_field_types()
        for key, value in table.items():
            if key in TYPED_FIELDS:
                why = f"{key} is a class of Python, and no data: make this team in Python"
                self._add_fault((key,), "UnknownKey", why)
            elif key not in kinds:
                self._refuse_key((key,), kinds, "an agent has")
            elif key in NAMED_FIELDS:
                names[key] = self._check_names((key,), value)
            else:
                values |= self._check_field(key, kinds[key], value)
        return SettingsFile(self.file.source, values, names, self.theme)

    def _check_field(self, key: str, kind: type[Settings] | None, value: Any) -> Mapping[str, Any]:
        """Return a field by its name; nothing if the value is wrong."""
        if kind is not None and isinstance(value, dict):
            made = self._check_table((key,), kind, value)
            return {} if made is None else {key: made}
        if kind is not None and isinstance(value, list):
            # Several tables, such as monitors.
            several = [
                self._check_table((key,), kind, item) for item in value if isinstance(item, dict)
            ]
            value = [item for item in several if item] if len(several) == len(value) else value
        if key == "theme" and isinstance(value, str) and value not in THEMES:
            return self._read_theme(value)
        if key == "capabilities" and isinstance(value, dict):
            return {key: dict(self._check_capabilities(value))}
        if key == "guidance" and isinstance(value, dict):
            for part in value.keys() - GUIDANCE_PARTS:
                self._refuse_key((key, part), GUIDANCE_PARTS, "the guidance has")
            value = {part: entry for part, entry in value.items() if part in GUIDANCE_PARTS}
        return (
            {key: value}
            if self._try((key,), lambda: Agent(**{"name": "agent", key: value}))
            else {}
        )

    def _check_table(
        self, keys: tuple[str, ...], kind: type[Settings], table: Mapping[str, Any]
    ) -> Settings | None:
        """Return an object of the settings; `None` if a value is wrong."""
        good, values = True, dict(table)
        needed = {"name": "agent"} if "name" in kind.model_fields else {}
        for name, value in table.items():
            field = kind.model_fields.get(name)
            inner = _find_table(field.annotation) if field else None
            if field is None:
                self._refuse_key((*keys, name), kind.model_fields, f"{'.'.join(keys)} has")
                good = False
            elif inner and isinstance(value, dict):
                values[name] = self._check_table((*keys, name), inner, value)
                good &= values[name] is not None
            else:
                good &= self._try((*keys, name), lambda: kind(**(needed | {name: value})))  # noqa: B023
        # Values that are right by themselves may not fit together.
        return kind(**values) if good and self._try(keys, lambda: kind(**values)) else None

    def _read_theme(self, path: str) -> Mapping[str, NameTheme]:
        """Return the names of a file in the folder of the settings; nothing if it has none."""
        source = self.file.source
        if not (source.path.parent / path).exists():
            why = f"{path!r} is no file beside the settings, and none of {', '.join(THEMES)}"
            self._add_fault(("theme",), "InvalidTheme", why)
            return {}
        place = (source.name, self.file.find_line("theme"))
        self.theme = self.reader.read_named_file(source.path.parent, path, place)
        if self.theme is None:
            return {}
        try:
            return {"theme": NameTheme(self.theme.name, tuple(self.theme.text.splitlines()))}
        except ConfigurationError as error:
            self.reader.add_fault(self.theme.name, error.line, "InvalidTheme", error.why)
            return {}

    def _check_capabilities(self, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():

            def make(name: str = name, value: Any = value) -> Capability:
                full = value
                if isinstance(value, dict):
                    unknown = [item for item in value if item not in Capability.model_fields]
                    for item in unknown:
                        why = f"a capability has {', '.join(Capability.model_fields)}"
                        raise InvalidSetting("Capability", item, value[item], why)
                    full = Capability(value.get("confidence", 1.0), value.get("examples", ()))
                return check_capabilities("", {name: full}).full[name]

            if self._try(("capabilities", name), make):
                yield name, make()

    def _check_names(self, keys: tuple[str, ...], value: Any) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        why = (
            f"{'.'.join(keys)} = {shorten_repr(value)} is no list of names, such as ['one', 'two']"
        )
        self._add_fault(keys, "InvalidField", why)
        return ()

    def _refuse_key(self, keys: tuple[str, ...], names: Collection[str], owner: str) -> None:
        close = get_close_matches(keys[-1], names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        why = f"there is no setting {'.'.join(keys)!r}; {meant}{owner} {', '.join(names)}"
        self._add_fault(keys, "UnknownKey", why)

    def _add_fault(self, keys: tuple[str, ...], error: str, why: str) -> None:
        self.reader.add_fault(self.file.source.name, self.file.find_line(*keys), error, why)

    def _try(self, keys: tuple[str, ...], make: Callable[[], object]) -> bool:
        """Return whether a value can be used; else note why not."""
        try:
            make()
        except EchelonsError as error:
            inner = getattr(error, "setting", "").split(".")
            why = str(error).removeprefix("agent 'agent': ")
            self._add_fault((*keys, *inner), get_error_name(error), why)
            return False
        return True


@cache
def get_field_types() -> Mapping[str, type[Settings] | None]:
    """Return the fields of an `Agent` that are data, with the class of those that are tables."""
    module = vars(sys.modules[Agent.__module__])

    class Unknown:
        """A name imported for type checkers alone, which is no class of ours."""

        __class_getitem__ = classmethod(lambda cls, _: cls)

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return module.get(name, getattr(builtins, name, Unknown))

    hints = get_type_hints(Agent, localns=Names())
    types: dict[str, type[Settings] | None] = {}
    for item in fields(Agent):
        if item.init and item.name not in TYPED_FIELDS:
            types[item.name] = _find_table(hints[item.name])
    return types


def _find_table(annotation: Any) -> type[Settings] | None:
    """Return the class of settings that a field may be."""
    kinds = [item for item in (annotation, *get_args(annotation)) if isinstance(item, type)]
    return next((kind for kind in kinds if issubclass(kind, Settings)), None)
