"""Agents made of the profiles of a team's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from echelons.agent import Agent
from echelons.errors import (
    EchelonsError,
    ModelError,
    PermissionsWidened,
    TeamError,
    TeamNotTrusted,
    escape_braces,
    get_error_name,
)
from echelons.guards.permissions import NO_PERMISSIONS, Permissions
from echelons.models.resolution import check_model_name
from echelons.profiles.python_file import (
    Declaration,
    Kind,
    PythonFile,
    load_declared,
    unload_package,
)
from echelons.profiles.reader import KINDS, Profile, Team, read_team
from echelons.profiles.settings_file import Fault
from echelons.tree.names import PATH_SEPARATOR


class DeclaredTool:
    """A tool that is known by its declaration alone, and cannot be called."""

    args_schema: Any = None

    def __init__(self, declaration: Declaration, file: str) -> None:
        self.name = declaration.name
        self.description = declaration.description
        self._file = file

    def invoke(self, *_: Any, **__: Any) -> None:
        """Refuse the call.

        Raises:
            TeamNotTrusted: Always.
        """
        raise TeamNotTrusted(self._file, (self._file,))


def load_team_folder(folder: str | Path, trusted: bool) -> Agent:
    """Return the root agent of a team's folder, whose Python is executed only if it is trusted.

    Raises:
        TeamError: There is no such folder; something is wrong with its files.
        TeamNotTrusted: It has Python, and is not trusted.
    """
    team = read_team(folder)
    _refuse_faults(folder, team.faults)
    return _load(replace(team, spare=()), folder, trusted)


def load_profile(folder: str | Path, name: str, *, trusted: bool = False) -> Agent:
    """Return the agent of one profile of a team's folder, with those below it.

    Args:
        folder: The team's folder.
        name: The profile: an agent of the tree, or one in `default`.
        trusted: Whether the Python that the agents use may be executed.

    Raises:
        TeamError: The folder has none of that name; As of `load_team_folder`.
    """
    team = read_team(folder)
    _refuse_faults(folder, team.faults)
    profiles = {profile.name: profile for profile in team.profiles}
    if name not in profiles:
        close = get_close_matches(name, profiles, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise TeamError(
            f"there is no profile {{profile!r}}; {meant}the folder has {{known}}",
            code="unknown_profile",
            profile=name,
            known=tuple(profiles),
        )
    return _load(replace(team, root=profiles[name], spare=()), folder, trusted)


def load_spawnable(folder: str | Path, *, trusted: bool = False) -> dict[str, Agent]:
    """Return the agents of the profiles that agents of a team may give at run time, by name.

    They are for `Session(spawnable=...)`. Those that no agent's `permissions.spawn` names are left
    out, and their Python is not executed.

    Args:
        folder: The team's folder.
        trusted: Whether the Python that they use may be executed.

    Raises:
        TeamError: As of `load_team_folder`.
    """
    team = read_team(folder)
    _refuse_faults(folder, team.faults)
    rules = [profile.values.get("permissions", NO_PERMISSIONS).spawn for profile in team.profiles]
    named = {name for rule in rules if rule for name in rule.profiles}
    return {
        profile.name: _load(replace(team, root=profile, spare=()), folder, trusted)
        for profile in team.profiles
        if profile.name in named
    }


def sketch_team_folder(folder: str | Path) -> Agent:
    """Return the root agent of a team's folder without executing anything; its tools cannot run.

    Raises:
        TeamError: There is no such folder; something is wrong with its files.
    """
    team = read_team(folder)
    _refuse_faults(folder, team.faults)
    return _TeamBuilder(team, execute=False).build(folder)


def check_team_folder(folder: str | Path) -> tuple[Team, tuple[Fault, ...]]:
    """Return the profiles of a team's folder and all that is wrong; nothing is executed.

    Raises:
        TeamError: There is no such folder.
    """
    team = read_team(folder)
    builder = _TeamBuilder(team, execute=False)
    builder.build_members()
    builder.check_models()
    # An agent that lacks what is wrong may be refused for that, too.
    return team, team.faults or tuple(dict.fromkeys(builder.faults))


def _load(team: Team, folder: str | Path, trusted: bool) -> Agent:
    if (files := team.python_files) and not trusted:
        # Checks that execute nothing come first.
        _TeamBuilder(team, execute=False).build(folder)
        raise TeamNotTrusted(str(folder), files)
    return _TeamBuilder(team, execute=trusted).build(folder)


def _refuse_faults(folder: str | Path, faults: Sequence[Fault]) -> None:
    if faults:
        shown = "; ".join(f"{fault.place}: {fault.why}" for fault in faults[:3])
        if len(faults) > 3:
            shown += f"; and {len(faults) - 3} more, which `echelons check` lists"
        raise TeamError(
            f"the team in {{folder!r}} cannot be used: {escape_braces(shown)}",
            code="invalid_profile",
            folder=str(folder),
            faults=tuple((fault.place, fault.why) for fault in faults),
        )


class _TeamBuilder:
    """Makes the agents of one team, from the lowest up."""

    def __init__(self, team: Team, *, execute: bool) -> None:
        self.faults: list[Fault] = []
        self._team = team
        self._execute = execute
        self._loaded: dict[str, dict[str, Any]] = {}
        self._packages: set[Path] = set()
        # A text that a superior's folder replaces stays the library's for those below it.
        has_texts = any(profile.parts.prompts for profile in team.profiles)
        self._inherited: dict[str, Any] = {"guidance": {}} if has_texts else {}
        self._places: dict[str, Profile] = {profile.name: profile for profile in team.profiles}

    def build(self, folder: str | Path) -> Agent:
        """Return the root agent.

        Raises:
            TeamError: An agent cannot be made.
        """
        root = self.build_members()
        _refuse_faults(folder, self.faults)
        return root

    def build_members(self) -> Agent:
        """Return the root agent without what is wrong, and note the faults."""
        for profile in self._team.spare:
            self._build_agent(profile)
        return self._build_agent(self._team.root)

    def check_models(self) -> None:
        """Note the models whose names are none."""
        for profile in self._team.profiles:
            if isinstance(name := profile.values.get("model"), str):
                try:
                    check_model_name(name)
                except ModelError as error:
                    self._note(profile, error)

    def _build_agent(self, profile: Profile) -> Agent:
        below = [self._build_agent(subordinate) for subordinate in profile.subordinates]
        parts: dict[str, Any] = {
            kind: [self._get_declared(kind, *file) for file in profile.declared[kind]]
            for kind in KINDS
            # What is only declared is no middleware.
            if profile.declared[kind] and (kind == "tools" or self._execute)
        }
        values = {**self._inherited, **profile.values}
        try:
            return Agent(**values, **parts, subordinates=below)
        except EchelonsError as error:
            is_rule = error.code == "unknown_tool" and error.why
            if self._execute or not (is_rule and _has_middleware(profile)):
                self._note(profile, error)
                return Agent(profile.name)
            # Whether a middleware brings a tool of that name, only its execution would tell.
            del values["permissions"]
        return Agent(**values, **parts, subordinates=below)

    def _get_declared(self, kind: Kind, declaration: Declaration, file: PythonFile) -> Any:
        if not self._execute:
            return DeclaredTool(declaration, file.source.name)
        name, folder = file.source.name, file.source.path.parent
        if folder not in self._packages:
            # A second load sees what was changed since the first.
            self._packages.add(folder)
            unload_package(folder)
        if name not in self._loaded:
            self._loaded[name], fault = load_declared(file, kind)
            if fault:
                self.faults.append(fault)
        return self._loaded[name].get(declaration.name, DeclaredTool(declaration, name))

    def _note(self, profile: Profile, error: EchelonsError) -> None:
        """Note why an agent cannot be made, at the line of the setting that is meant."""
        keys: tuple[str, ...] = ()
        if isinstance(error, PermissionsWidened):
            profile = self._places.get(error.agent.rpartition(PATH_SEPARATOR)[2], profile)
            keys = _find_permission(profile, error.name)
        elif error.code == "unknown_tool" and error.why:
            keys = _find_permission(profile, str(error.tool))
        elif error.code == "unknown_model":
            keys = ("model",)
        elif error.code == "inner_limits":
            profile = self._places.get(error.agent, profile)
            keys = ("limits", *error.limits[:1])
        elif error.code == "inner_theme":
            profile = self._places.get(error.agent, profile)
            keys = ("theme",)
        settings = profile.parts.settings
        place, line = profile.folder, 0
        if settings and (line := settings.find_line(*keys)):
            place = settings.source.name
        self.faults.append(Fault(place, line, get_error_name(error), str(error)))


def _has_middleware(profile: Profile) -> bool:
    """Return whether an agent or one below it has middleware."""
    return bool(profile.declared["middleware"]) or any(map(_has_middleware, profile.subordinates))


def _find_permission(profile: Profile, name: str) -> tuple[str, ...]:
    """Return the keys of the permission that says something of a name, or is called so."""
    permissions: Permissions = profile.values.get("permissions", NO_PERMISSIONS)
    first, *rest = name.split(".")
    if name in permissions.approvals:
        return ("permissions", "approvals", name)
    if first in Permissions.model_fields:
        return ("permissions", first, *rest)
    if name in (permissions.tools or ()):
        return ("permissions", "tools")
    return ("permissions", "spawn", "tools")
