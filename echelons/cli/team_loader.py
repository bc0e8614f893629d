"""Loading of teams by name: the shipped ones, and the user's own as `module:agent` or folders.

A team is imported when a command names it, or when the resumed thread has recorded it and this user
has run it with this database. A database is untrusted: a function that only a database names is not
called unless it is annotated to return an `Agent`. The Python in a folder is executed only if the
command says so, each time.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from echelons.checkpoints.default_path import expand_home, was_run
from echelons.cli.command import StoredTeamOptions
from echelons.cli.output import Tracker
from echelons.errors import EchelonsError, TeamError, invalid_team

if TYPE_CHECKING:
    from asyncio import Runner

    from echelons.agent import Agent
    from echelons.checkpoints.threads.store import RootThread
    from echelons.cli.database import OpenThread

TEAMS_PACKAGE = "echelons.teams"
WANTED = "name an Agent, or a function (`async` or not) without parameters that returns one"


@dataclass(frozen=True, slots=True)
class TeamSpec:
    """What a team is built from, in this process or another.

    Attributes:
        team: The name of a shipped team, `module:agent`, or the path of a folder, made absolute.
        docs: The folder of its documents, if it needs one.
        model: A model for the root in place of its own.
        trusted: Whether the user named the team; False if only a database does.
        trusted_folder: Whether the Python in the folder may be executed; it is never stored.
        workspace: The folder whose files its agents read and propose to change, if there is one.
        prices: The file of the prices of models, if there is one.
    """

    team: str
    docs: Path | None = None
    model: str | None = None
    trusted: bool = True
    trusted_folder: bool = False
    workspace: Path | None = None
    prices: Path | None = None

    def __post_init__(self) -> None:
        if names_folder(self.team):
            folder = expand_home(Path(self.team)).absolute()
            object.__setattr__(self, "team", str(folder))

    def to_metadata(self) -> dict[str, str]:
        """Return the metadata that a thread records."""
        values = {key: getattr(self, field) for key, (field, _) in _METADATA.items()}
        return {key: str(value) for key, value in values.items() if value is not None}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> TeamSpec | None:
        """Return the team that a thread's metadata record, or `None` if they record none."""
        values = {
            field: read(metadata[key])
            for key, (field, read) in _METADATA.items()
            if isinstance(metadata.get(key), str)
        }
        return cls(**values, trusted=False) if "team" in values else None


_METADATA: dict[str, tuple[str, Callable[[str], Any]]] = {
    "team": ("team", str),
    "team_docs": ("docs", Path),
    "team_model": ("model", str),
    "team_workspace": ("workspace", Path),
    "team_prices": ("prices", Path),
}
"""The fields that a thread records, by their keys there."""


class TeamSource(NamedTuple):
    """Where a team is loaded from: what builds its root agent, and what it remarks before a run.

    An `async def` function of the user runs in the event loop of the runner, or in one of its own.
    """

    build_agent: Callable[[Runner | None], Agent]
    format_remarks: Callable[[], str] = str


def _is_imported(team: str) -> bool:
    """Return whether a team is a module of a user."""
    return ":" in team and not names_folder(team)


def resolve_stored_team(
    root: RootThread, options: StoredTeamOptions, database: str | Path
) -> TeamSpec:
    """Return the team of a stored thread, with what the options replace.

    Raises:
        TeamError: Neither the thread nor the command line names a team; or the thread names a
            module that this user has not run with the database, which may be a stranger's.
    """
    team = TeamSpec.from_metadata(root.metadata)
    if options.team is not None:
        named = TeamSpec(options.team)
        team = replace(team, trusted=True) if team and team.team == named.team else named
    if team is None:
        raise TeamError(
            "thread {thread!r} does not say which team it belongs to (`echelons run` notes it); "
            "name it with --team TEAM",
            code="team_not_recorded",
            thread=root.name or root.id,
        )
    is_imported = not team.trusted and _is_imported(team.team)
    if is_imported and not was_run(team.team, Path(database)):
        raise TeamError(
            "thread {thread!r} names the team {team!r}, whose module you have not run with this "
            "database; if it is yours, name it with --team {team}",
            code="team_not_run",
            thread=root.name or root.id,
            team=team.team,
        )
    return replace(
        team,
        docs=resolve_folder(options.docs) or team.docs,
        model=team.model if options.model is None else options.model,
        trusted_folder=options.trust,
        workspace=resolve_folder(options.workspace) or team.workspace,
        prices=resolve_folder(options.prices) or team.prices,
    )


def resolve_folder(path: Path | None) -> Path | None:
    """Return a path of the command line as an absolute one, if there is one."""
    return None if path is None else expand_home(path).absolute()


def list_agent_paths(
    thread: OpenThread, team: str | None, track: Tracker | None, *, have_model: bool = False
) -> frozenset[str]:
    """Return the paths of a stored thread's team; none if it cannot be loaded and is not named."""
    from echelons.agent import Agent
    from echelons.tree.members import walk_tree

    try:
        options = StoredTeamOptions(team=team)
        spec = resolve_stored_team(thread.root, options, thread.saver.path)
        agent = load_team(spec, track=track, run=False)
    except EchelonsError:
        if team is not None:
            raise
        return frozenset()  # without --team, agents that have begun can still be named
    return frozenset(
        place.path_text
        for place in walk_tree(agent)
        if isinstance(place.member, Agent) or not have_model
    )


def load_team(
    name: TeamSpec,
    team_source: TeamSource | None = None,
    loop: Runner | None = None,
    track: Tracker | None = None,
    *,
    run: bool = True,
) -> Agent:
    """Return the root agent of a team, from its source if that is known already.

    An `async def` function creates its clients in `loop`, in which the team will run. Unless the
    team will `run`, nothing of a folder is executed.

    Raises:
        TeamError: There is no such team, or it cannot be loaded.
    """
    if not run and names_folder(name.team):
        from echelons.profiles.builder import sketch_team_folder

        team_source = TeamSource(lambda _: sketch_team_folder(name.team))
    agent = (team_source or find_team_source(name, track)).build_agent(loop)
    if name.model is None:
        return agent
    from echelons.models.resolution import OFFLINE_NAMES
    from echelons.offline.planner import OfflinePlanner

    # An agent with an offline planner of its own keeps it.
    kept = name.model in OFFLINE_NAMES and isinstance(agent.model, OfflinePlanner)
    return agent if kept else replace(agent, model=name.model)


def load_team_profiles(name: TeamSpec) -> Mapping[str, Agent]:
    """Return the agents that those of a team may make copies of at run time; of folders only.

    Raises:
        TeamError: One of them cannot be loaded.
    """
    if not names_folder(name.team):
        return {}
    from echelons.profiles.builder import load_spawnable

    return load_spawnable(name.team, trusted=name.trusted_folder)


def find_team_source(name: TeamSpec, track: Tracker | None = None) -> TeamSource:
    """Return the source of a team; `track` shows the progress while its documents are read.

    Raises:
        TeamError: There is no such team, or its documents are missing or not wanted.
    """
    team, docs = name.team, name.docs
    if names_folder(team):
        from echelons.profiles.builder import load_team_folder

        source = TeamSource(lambda _: load_team_folder(team, name.trusted_folder))
    elif ":" in team:
        source = TeamSource(lambda loop: _load_agent(team, name.trusted, loop))
    elif team not in list_shipped_teams():
        close = get_close_matches(team, list_shipped_teams(), n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise TeamError(
            f"there is no team {{team!r}}; {meant}teams are {{known}}, and one of your own is "
            "named by its folder, or module:agent",
            code="unknown_team",
            team=team,
            known=tuple(list_shipped_teams()),
        )
    else:
        module = importlib.import_module(f"{TEAMS_PACKAGE}.{team}.team")
        parameter = inspect.signature(module.team).parameters.get("docs")
        # A team may also work without documents: then they are a parameter with a default.
        if parameter is not None and not (docs is None and parameter.default is None):
            if docs is None:
                why = "it answers from documents; name their folder with --docs FOLDER"
                raise invalid_team(team, why)
            more = {"track": track} if track else {}
            survey = cache(lambda: module.survey(docs, **more))  # a big folder takes a while
            return TeamSource(lambda _: module.team(survey()), lambda: survey().report())
        source = TeamSource(lambda _: module.team())
    if docs is not None:
        why = f"it takes no documents, and --docs names {str(docs)!r}; leave it out"
        raise invalid_team(team, why)
    return source


def takes_documents(team: str) -> bool:
    """Return whether a team answers from a folder of documents, as some shipped ones do."""
    if team not in list_shipped_teams():
        return False
    module = importlib.import_module(f"{TEAMS_PACKAGE}.{team}.team")
    return "docs" in inspect.signature(module.team).parameters


def list_shipped_teams() -> list[str]:
    """Return the names of the teams that come with the library: the packages in `teams`."""
    package = find_spec(TEAMS_PACKAGE)
    folders = package.submodule_search_locations if package else None
    return sorted(module.name for module in pkgutil.iter_modules(folders) if module.ispkg)


def names_folder(team: str) -> bool:
    """Return whether the name of a team is that of a folder; a shipped team comes first.

    >>> names_folder("travel"), names_folder("./travel"), names_folder("trips:head")
    (False, True, False)
    """
    if team in list_shipped_teams():
        return False
    if "/" in team or os.sep in team or team.startswith((".", "~")):
        return not team.startswith(".") or ":" not in team
    try:
        return Path(team).is_dir()
    except (OSError, ValueError):  # too long for a path, or no text for one
        return False


def list_team_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that have the files of a team; they are not read."""
    try:
        entries = sorted(folder.iterdir())
        return [entry for entry in entries if is_team_folder(entry)]
    except OSError:
        return []


def is_team_folder(folder: Path) -> bool:
    """Return whether a folder has the files of a team."""
    return any((folder / file).exists() for file in ("prompt.md", "settings.toml"))


def _load_agent(team: str, trusted: bool, loop: Runner | None) -> Agent:
    """Return an agent in a module of the user, or what a function there returns."""
    from echelons.text.error_lines import describe_error

    try:
        return _import_agent(team, trusted, loop)
    except (EchelonsError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A script may exit when it is imported, a client that reaches no server may cancel the
        # task that waits for it, and the attributes of a module may be functions.
        raise _build_load_error(team, describe_error(error)) from error


def _import_agent(team: str, trusted: bool, loop: Runner | None) -> Agent:
    from echelons.agent import Agent

    name, _, path = team.partition(":")
    if not name or not path:
        raise _build_load_error(team, "it lacks the module or the agent")
    # As `python -m` does, so that a module in the current folder can be imported.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module: Any = importlib.import_module(name)
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            names = sorted(
                key
                for key, member in vars(module).items()
                if not key.startswith("_")
                if isinstance(member, Agent)
                or (inspect.isfunction(member) and _returns_agent(member))
            )
            has = ", ".join(names) or "no agents"
            raise invalid_team(team, f"the module has no {part!r}; it has {has}")
        value = getattr(value, part)
    if not isinstance(value, Agent) and inspect.isroutine(value):
        value = _call_function(team, value, trusted, loop)
    if not isinstance(value, Agent):
        raise invalid_team(team, f"it is of type {type(value).__name__}, no Agent; {WANTED}")
    return value


def _call_function(team: str, make: Any, trusted: bool, loop: Runner | None) -> Any:
    if not trusted and not _returns_agent(make):
        raise invalid_team(
            team,
            "a function that only a database names is not called unless it is annotated "
            f"`-> Agent`: annotate it, or name it yourself with --team {team}",
        )
    try:
        inspect.signature(make).bind()
    except (TypeError, ValueError) as error:
        why = f"it is a function with parameters ({error}); {WANTED}"
        raise invalid_team(team, why) from error
    result = make()
    if not isinstance(result, Coroutine):
        return result
    import asyncio

    return (loop.run if loop else asyncio.run)(result)


def _build_load_error(team: str, why: str) -> TeamError:
    advice = "write it as module:agent, the module as Python imports it from this folder"
    return invalid_team(team, f"it cannot be loaded: {why}; {advice}")


def _returns_agent(make: Any) -> bool:
    from echelons.agent import Agent

    kind = getattr(make, "__annotations__", {}).get("return")
    return kind is Agent or (isinstance(kind, str) and kind.rpartition(".")[2] == Agent.__name__)
