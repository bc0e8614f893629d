"""A team's folder read to profiles, one for each agent, without executing anything.

A file is looked up in the agent's folder first, then in the team's `default` folder. What is wrong
is noted, and reading goes on, so that all faults are found at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from echelons.errors import ConfigurationError, invalid_team
from echelons.guards.limits import MAX_DEPTH
from echelons.guards.permissions import NO_PERMISSIONS
from echelons.profiles.python_file import (
    Declaration,
    Kind,
    PythonFile,
    parse_module,
    parse_python,
)
from echelons.profiles.settings_file import (
    Fault,
    FolderReader,
    SettingsFile,
    SourceFile,
    get_field_types,
    read_settings,
)
from echelons.prompts import GUIDANCE_PARTS
from echelons.tree.names import RESERVED_TOOLS, check_name

PROMPT: Final = "prompt.md"
SETTINGS: Final = "settings.toml"
DEFAULT: Final = "default"
KINDS: Final[tuple[Kind, ...]] = ("tools", "middleware")
RESERVED_FOLDERS: Final = frozenset({"prompts", *KINDS, DEFAULT, "__pycache__"})
"""Folders that are no subordinates, beside those with a dot in their name."""
MAX_PROFILES: Final = 10_000
"""Most agents of a team's folder."""


@dataclass(frozen=True, slots=True)
class ProfileParts:
    """The files of one folder, without those of its subfolders."""

    prompt: SourceFile | None = None
    settings: SettingsFile | None = None
    prompts: Mapping[str, SourceFile] = field(default_factory=dict)
    python: Mapping[Kind, tuple[PythonFile, ...]] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """The sources of one agent: its own files, and those of `default` that it uses.

    Attributes:
        name: The agent's name.
        folder: Its folder, from the team's on; `"."` for the root.
        parts: The files.
        declared: The tools and middleware by kind: each declaration with its file.
        subordinates: The profiles of its subfolders.
    """

    name: str
    folder: str
    parts: ProfileParts
    declared: Mapping[Kind, tuple[tuple[Declaration, PythonFile], ...]]
    subordinates: tuple[Profile, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The fields of its `Agent` that are data."""
        settings = self.parts.settings
        fields = {**settings.values} if settings else {}
        if self.parts.prompt is not None:
            fields["prompt"] = self.parts.prompt.text.strip()
        if self.parts.prompts:
            texts = {part: item.text.strip() for part, item in self.parts.prompts.items()}
            fields["guidance"] = texts
        return {**fields, "name": self.name}

    @property
    def files(self) -> Iterator[SourceFile]:
        """The files that the agent is made of, each once."""
        parts = self.parts
        yield from (item for item in (parts.prompt,) if item)
        if parts.settings:
            yield parts.settings.source
            yield from (item for item in (parts.settings.theme,) if item)
        yield from parts.prompts.values()
        files = [file for item in self.declared.values() for _, file in item]
        python = [item for file in files for item in (file.source, *file.helpers)]
        yield from dict.fromkeys(python)

    @property
    def hash(self) -> str:
        """A digest of its files' names and texts, equal in every process and folder."""
        digests = sorted((self._get_role(file), file.digest) for file in self.files)
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]

    def _get_role(self, file: SourceFile) -> str:
        """Return the path of a file as it would be in the agent's own folder."""
        kind = file.path.parent.name
        return (
            f"{kind}/{file.path.name}" if kind in RESERVED_FOLDERS - {DEFAULT} else file.path.name
        )


@dataclass(frozen=True, slots=True)
class Team:
    """The profiles of a team's folder."""

    folder: Path
    root: Profile
    spare: tuple[Profile, ...]
    faults: tuple[Fault, ...]

    @property
    def profiles(self) -> Iterator[Profile]:
        """All profiles: those of the tree, depth first, then the spare ones."""
        left = [self.root, *self.spare]
        while left:
            yield (profile := left.pop(0))
            left[:0] = profile.subordinates

    @property
    def python_files(self) -> list[str]:
        """The names of the files that are executed when the team runs."""
        files = {file for profile in self.profiles for file in profile.files}
        return sorted(file.name for file in files if file.path.suffix == ".py")


def read_team(folder: str | Path) -> Team:
    """Return the profiles of a team's folder, with all that is wrong with them.

    Raises:
        TeamError: There is no such folder.
    """
    try:
        root = Path(folder).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        if isinstance(error, (FileNotFoundError, ValueError)):
            why = "there is no such folder; check the path"
        raise invalid_team(str(folder), why) from error
    if not root.is_dir():
        raise invalid_team(str(folder), f"it is a file; name its folder, {str(root.parent)!r}")
    return _TeamReader(FolderReader(root)).read()


class _TeamReader:
    """Reads the folders of one team."""

    def __init__(self, files: FolderReader) -> None:
        self._files = files
        self._default = ProfileParts()
        self._folders: dict[str, str] = {}
        self._count = 0

    def read(self) -> Team:
        root = self._files.root
        default = root / DEFAULT
        parents = frozenset({root})
        has_default = default in self._files.list_folder(root, parents).folders
        if has_default:
            self._default = self._read_parts(default, parents)
        profile = self._read_profile(root, parents)
        spare: list[Profile] = []
        if has_default:
            spare = self._read_subfolders(default, parents | {default.resolve()}, 1)
        self._check_profile_names([profile, *spare])
        faults = sorted(dict.fromkeys(self._files.faults))
        return Team(root, profile, tuple(spare), tuple(faults))

    def _read_profile(self, folder: Path, parents: frozenset[Path], level: int = 1) -> Profile:
        own_parts = self._read_parts(folder, parents)
        parts = ProfileParts(
            own_parts.prompt,
            own_parts.settings or self._default.settings,
            {**self._default.prompts, **own_parts.prompts},
            own_parts.python,
        )
        if parts.prompt is None and not (parts.settings and "prompt" in parts.settings.values):
            parts = replace(parts, prompt=self._default.prompt)
            if parts.prompt is None and own_parts.whole and self._default.whole:
                why = f"there is no {PROMPT}, neither here nor in {DEFAULT}/: write one; "
                self._files.add_fault(
                    folder,
                    0,
                    "PromptMissing",
                    f"{why}a folder that is no agent has a dot in its name",
                )
        elif own_parts.prompt and own_parts.settings and "prompt" in own_parts.settings.values:
            line, name = own_parts.settings.find_line("prompt"), own_parts.settings.source.name
            why = f"the prompt stands here and in {own_parts.prompt.name}: leave one out"
            self._files.add_fault(name, line, "DuplicateName", why)
        if parts.prompts and own_parts.settings and "guidance" in own_parts.settings.values:
            line, name = own_parts.settings.find_line("guidance"), own_parts.settings.source.name
            files = ", ".join(item.name for item in parts.prompts.values())
            why = f"the guidance stands here and in {files}: leave one out"
            self._files.add_fault(name, line, "DuplicateName", why)
        name = self._choose_name(folder, parts)
        declared: dict[Kind, tuple[tuple[Declaration, PythonFile], ...]] = {
            kind: self._choose_declared(parts, kind) for kind in KINDS
        }
        below = self._read_subfolders(folder, parents, level)
        if own_parts.settings and own_parts.settings.names.get("subordinates"):
            below = self._sort_subordinates(below, own_parts.settings)
        return Profile(name, self._files.name(folder), parts, declared, tuple(below))

    def _sort_subordinates(self, below: list[Profile], settings: SettingsFile) -> list[Profile]:
        """Return subordinates in the order of the settings; those that they leave out come last."""
        listed = settings.names["subordinates"]
        for name in set(listed) - {child.name for child in below}:
            names = ", ".join(child.name for child in below) or "none"
            why = f"there is no subordinate {name!r} to put in order; the folders are: {names}"
            line = settings.find_line("subordinates")
            self._files.add_fault(settings.source.name, line, "UnknownAgent", why)
        ranks = {name: rank for rank, name in enumerate(listed)}
        return sorted(below, key=lambda profile: ranks.get(profile.name, len(ranks)))

    def _read_subfolders(self, folder: Path, parents: frozenset[Path], level: int) -> list[Profile]:
        profiles: list[Profile] = []
        for subfolder in self._files.list_folder(folder, parents).folders:
            if subfolder.name in RESERVED_FOLDERS or "." in subfolder.name:
                continue
            if level == MAX_DEPTH:
                why = f"it is on level {level + 1}, and no tree may be deeper than {MAX_DEPTH}"
                self._files.add_fault(subfolder, 0, "TreeTooDeep", f"{why}: flatten it")
                continue
            self._count += 1
            if self._count >= MAX_PROFILES:
                if self._count == MAX_PROFILES:
                    why = f"a team's folder has at most {MAX_PROFILES} agents: divide it"
                    self._files.add_fault(subfolder, 0, "TooManyProfiles", why)
                break
            real = subfolder.resolve()
            profiles.append(self._read_profile(subfolder, parents | {real}, level + 1))
        return profiles

    def _read_parts(self, folder: Path, parents: frozenset[Path]) -> ProfileParts:
        entries = self._files.list_folder(folder, parents)
        by_name = {path.name: path for path in entries.files}
        prompt, settings = by_name.get(PROMPT), by_name.get(SETTINGS)
        for name in by_name.keys() - {PROMPT, SETTINGS}:
            close = get_close_matches(name.lower(), (PROMPT, SETTINGS), n=1, cutoff=0.8)
            if close and close[0] not in by_name:
                why = f"did you mean {close[0]!r}? No file of this name is read"
                self._files.add_fault(by_name[name], 0, "UnknownFile", why)
        source = self._files.read_file(settings) if settings else None
        subfolders = {path.name: path for path in entries.folders}
        if DEFAULT in subfolders and folder != self._files.root:
            why = "only the team's own folder has a default folder: move its files there"
            self._files.add_fault(subfolders[DEFAULT], 0, "UnknownFile", why)
        return ProfileParts(
            self._files.read_file(prompt) if prompt else None,
            read_settings(source, self._files) if source else None,
            self._read_prompts(subfolders.get("prompts"), parents),
            {kind: self._read_python(subfolders.get(kind), kind, parents) for kind in KINDS},
            # A prompt that cannot be read is a fault already, and not missing.
            whole=entries.whole and prompt is None,
        )

    def _read_prompts(self, folder: Path | None, parents: frozenset[Path]) -> dict[str, SourceFile]:
        paths = self._files.list_folder(folder, parents).files if folder else ()
        read: dict[str, SourceFile] = {}
        for path in paths:
            if path.suffix != ".md" or path.stem not in GUIDANCE_PARTS:
                names = [f"{part}.md" for part in GUIDANCE_PARTS]
                close = get_close_matches(path.name, names, n=1)
                meant = f"did you mean {close[0]!r}? " if close else ""
                why = f"the library has no such text; {meant}it has {', '.join(names)}"
                self._files.add_fault(path, 0, "UnknownFile", why)
            elif (source := self._files.read_file(path)) is not None:
                read[path.stem] = source
        return read

    def _read_python(
        self, folder: Path | None, kind: Kind, parents: frozenset[Path]
    ) -> tuple[PythonFile, ...]:
        paths = self._files.list_folder(folder, parents).files if folder else ()
        python = [path for path in paths if path.suffix == ".py"]
        if python and kind not in get_field_types():
            self._files.add_fault(python[0], 0, "UnknownFile", f"agents have no {kind}: remove it")
            return ()
        read = [entry for path in python if (entry := self._files.read_file(path)) is not None]
        helpers = tuple(item for item in read if item.path.name.startswith("_"))
        for helper in helpers:
            parse_module(helper, self._files)
        parsed = [parse_python(item, kind, self._files) for item in read if item not in helpers]
        return tuple(replace(item, helpers=helpers) for item in parsed if item is not None)

    def _choose_name(self, folder: Path, parts: ProfileParts) -> str:
        """Return the name of an agent: that of its settings, or of its folder."""
        settings = parts.settings
        name = settings.values.get("name") if settings else None
        place, line = self._files.name(folder), 0
        if settings and name is not None:
            place, line = settings.source.name, settings.find_line("name")
            if settings is self._default.settings:
                why = "each agent has a name of its own: leave it out here"
                self._files.add_fault(place, line, "DuplicateName", why)
        try:
            name = check_name(folder.name if name is None else name)
        except ConfigurationError as error:
            self._files.add_fault(place, line, "InvalidName", f"{error}; or set name in {SETTINGS}")
            return "agent"
        if (other := self._folders.setdefault(name, place)) != place:
            why = f"the agent of {other!r} is called {name!r} too: rename one of them"
            self._files.add_fault(place, line, "DuplicateName", why)
        return name

    def _choose_declared(
        self, parts: ProfileParts, kind: Kind
    ) -> tuple[tuple[Declaration, PythonFile], ...]:
        """Return an agent's own declarations, after those of `default` that its settings name."""
        shared = {
            item.name: (item, file)
            for file in self._default.python.get(kind, ())
            for item in file.declared
        }
        declared = [(item, file) for file in parts.python.get(kind, ()) for item in file.declared]
        chosen: list[tuple[Declaration, PythonFile]] = []
        settings = parts.settings
        for name in settings.names.get(kind, ()) if settings else ():
            if name in shared:
                chosen.append(shared[name])
            elif settings and name not in {entry.name for entry, _ in declared}:
                close = get_close_matches(name, shared, n=1)
                meant = f"did you mean {close[0]!r}? " if close else ""
                names = ", ".join(shared) or "nothing"
                why = f"there is no {name!r} in {DEFAULT}/{kind}/; {meant}it declares {names}"
                line = settings.find_line(kind)
                self._files.add_fault(settings.source.name, line, "UnknownTool", why)
        unique: dict[str, tuple[Declaration, PythonFile]] = {}
        for declaration, file in [*dict.fromkeys(chosen), *declared]:
            name, (first, where) = declaration.name, unique.get(declaration.name, (None, file))
            if first is not None:
                why = f"{where.source.name}:{first.line} declares {name!r} too: rename one of them"
                self._files.add_fault(file.source.name, declaration.line, "DuplicateName", why)
            elif kind == "tools" and name in RESERVED_TOOLS:
                why = f"a tool of every agent is called {name!r}: rename it"
                self._files.add_fault(file.source.name, declaration.line, "InvalidName", why)
            else:
                unique[name] = declaration, file
        return tuple(unique.values())

    def _check_profile_names(self, profiles: list[Profile]) -> None:
        """Note the profiles that permissions name and no folder has."""
        for profile in Team(self._files.root, profiles[0], tuple(profiles[1:]), ()).profiles:
            permissions = profile.values.get("permissions", NO_PERMISSIONS)
            settings = profile.parts.settings
            spawn = permissions.spawn
            for name in spawn.profiles if spawn and settings else ():
                if settings and name not in self._folders:
                    close = get_close_matches(name, self._folders, n=1)
                    meant = f"did you mean {close[0]!r}? " if close else ""
                    why = f"there is no profile {name!r}; {meant}put it into {DEFAULT}/{name}/"
                    line = settings.find_line("permissions", "spawn", "profiles")
                    self._files.add_fault(settings.source.name, line, "UnknownProfile", why)
