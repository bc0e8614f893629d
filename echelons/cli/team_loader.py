"""Loading of teams by name: the shipped ones, and the user's own as `module:agent`.

No module imports a team; it is loaded here when a command names it, or when the resumed
thread has recorded it. A database is untrusted data: on its word alone, a function is only
called if its annotation says that it returns an `Agent`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from echelons.errors import EchelonsError, InvalidTeam, UnknownTeam

if TYPE_CHECKING:
    from echelons.agent import Agent

TEAMS_PACKAGE = "echelons.teams"
WANTED = "name an Agent, or a function without parameters that returns one"


@dataclass(frozen=True, slots=True)
class TeamSpec:
    """What a team is built from, in this process or another.

    Attributes:
        team: The name of a shipped team, or `module:agent`.
        docs: The folder of its documents, for a team that needs one.
        model: A model for the root in place of its own.
        trusted: Whether the user named the team; False if only a database does.
    """

    team: str
    docs: Path | None = None
    model: str | None = None
    trusted: bool = True

    def to_metadata(self) -> dict[str, str]:
        """Return the metadata that a thread records."""
        noted = {"team": self.team, "team_docs": self.docs, "team_model": self.model}
        return {key: str(value) for key, value in noted.items() if value is not None}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> TeamSpec | None:
        """Return the team that a thread's metadata record, or `None` if they record none."""
        noted = {key: metadata.get(key) for key in ("team", "team_docs", "team_model")}
        texts = {key: value for key, value in noted.items() if isinstance(value, str)}
        if "team" not in texts:
            return None
        docs = Path(texts["team_docs"]) if "team_docs" in texts else None
        return cls(texts["team"], docs, texts.get("team_model"), trusted=False)


class TeamSource(Protocol):
    """Where a team is loaded from."""

    def build_agent(self) -> Agent:
        """Build the root agent."""
        ...

    def format_remarks(self) -> str:
        """Return remarks for the user before the run; empty if there are none."""
        ...


def load_team(name: TeamSpec, team_source: TeamSource | None = None) -> Agent:
    """Return the root agent of a team.

    Args:
        name: The team.
        team_source: Its source, if that has been found already.

    Raises:
        TeamError: There is no such team, or it cannot be loaded.
        EchelonsError: The team is invalid.
    """
    agent = (team_source or find_team_source(name)).build_agent()
    if name.model is None or _has_own_planner(agent, name.model):
        return agent
    return replace(agent, model=name.model)


def _has_own_planner(agent: Agent, model: str) -> bool:
    """Whether the model is the offline planner, and the agent has one of its own."""
    from echelons.models.planner import OfflinePlanner
    from echelons.models.resolution import OFFLINE_NAMES

    return model in OFFLINE_NAMES and isinstance(agent.model, OfflinePlanner)


def find_team_source(name: TeamSpec) -> TeamSource:
    """Return the source of a team.

    Raises:
        TeamError: There is no such team, or its documents are missing or not wanted.
    """
    if ":" in name.team:
        found: TeamSource = ImportedTeam(name.team, name.trusted)
    elif name.team not in list_shipped_teams():
        raise UnknownTeam(name.team, list_shipped_teams())
    else:
        make = _import_team_function(name.team)
        if "docs" in inspect.signature(make).parameters:
            if name.docs is None:
                raise InvalidTeam(
                    name.team, "it answers from documents; name their folder with --docs FOLDER"
                )
            return DocumentTeam(name.team, name.docs)
        found = ShippedTeam(make)
    if name.docs is not None:
        why = f"it takes no documents, and --docs names {str(name.docs)!r}; leave it out"
        raise InvalidTeam(name.team, why)
    return found


def list_shipped_teams() -> list[str]:
    """Return the names of the teams that come with the library: the packages in `teams`."""
    package = find_spec(TEAMS_PACKAGE)
    folders = package.submodule_search_locations if package else None
    return sorted(module.name for module in pkgutil.iter_modules(folders) if module.ispkg)


def _import_team_function(team: str) -> Callable[..., Agent]:
    make: Callable[..., Agent] = importlib.import_module(f"{TEAMS_PACKAGE}.{team}.team").team
    return make


@dataclass(frozen=True, slots=True)
class ShippedTeam:
    """A shipped team without documents."""

    make: Callable[[], Agent]

    def build_agent(self) -> Agent:
        """Build the root agent."""
        return self.make()

    def format_remarks(self) -> str:
        """Return nothing; a shipped team needs no remarks."""
        return ""


@dataclass(frozen=True)
class DocumentTeam:
    """A shipped team that is built from a folder of documents."""

    team: str
    docs: Path

    def build_agent(self) -> Agent:
        """Build the root agent."""
        return _import_team_function(self.team)(self._survey)

    def format_remarks(self) -> str:
        """Return how much of the folder was read, and why the rest was not."""
        return str(self._survey.report())

    @cached_property
    def _survey(self) -> Any:
        # Cached, because a big folder takes a while to read.
        return importlib.import_module(f"{TEAMS_PACKAGE}.{self.team}.team").survey(self.docs)


@dataclass(frozen=True, slots=True)
class ImportedTeam:
    """An agent in a module of the user, or a function there that returns one."""

    team: str
    trusted: bool

    def build_agent(self) -> Agent:
        """Import the module, as from the current folder, and return or build the root agent.

        Raises:
            InvalidTeam: It cannot be imported, its function fails or may not be called, or it
                is no agent.
        """
        from echelons.agent import Agent

        module, _, attribute = self.team.partition(":")
        if not module or not attribute:
            raise self._build_error("it lacks the module or the agent")
        found = self._find_attribute(self._import_module(module), attribute)
        if not isinstance(found, Agent):
            found = self._call_function(found)
        if not isinstance(found, Agent):
            raise InvalidTeam(
                self.team, f"it is of type {type(found).__name__}, no Agent; {WANTED}"
            )
        return found

    def format_remarks(self) -> str:
        """Return nothing; the user wrote the team."""
        return ""

    def _import_module(self, name: str) -> Any:
        # As `python -m` does, so that a module in the current folder can be imported.
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        return self._run_user_code(lambda: importlib.import_module(name))

    def _find_attribute(self, module: Any, path: str) -> Any:
        found = module
        for name in path.split("."):
            if not hasattr(found, name):
                has = ", ".join(_list_agent_names(module)) or "no agents"
                raise InvalidTeam(self.team, f"the module has no {name!r}; it has {has}")
            found = getattr(found, name)
        return found

    def _call_function(self, make: Any) -> Any:
        if not inspect.isroutine(make) or inspect.iscoroutinefunction(make):
            return make
        if not self.trusted and not _returns_agent(make):
            raise InvalidTeam(
                self.team,
                "a function that only a database names is not called unless it is annotated "
                f"`-> Agent`: annotate it, or name it yourself with --team {self.team}",
            )
        try:
            inspect.signature(make).bind()
        except (TypeError, ValueError) as error:
            why = f"it is a function with parameters ({error}); {WANTED}"
            raise InvalidTeam(self.team, why) from error
        return self._run_user_code(make)

    def _build_error(self, why: str) -> InvalidTeam:
        return InvalidTeam(
            self.team,
            f"it cannot be loaded: {why}; write it as module:agent, the module as Python imports "
            "it from this folder",
        )

    def _run_user_code(self, work: Callable[[], Any]) -> Any:
        from echelons.text.error_lines import describe_error

        try:
            return work()
        except EchelonsError:
            raise
        # User code may raise any exception, and a script may exit when it is imported.
        except (Exception, SystemExit) as error:
            raise self._build_error(describe_error(error)) from error


def _list_agent_names(module: Any) -> list[str]:
    from echelons.agent import Agent

    names = vars(module).items()
    return sorted(
        name
        for name, value in names
        if not name.startswith("_")
        if isinstance(value, Agent) or (inspect.isfunction(value) and _returns_agent(value))
    )


def _returns_agent(make: Any) -> bool:
    from echelons.agent import Agent

    said = getattr(make, "__annotations__", {}).get("return")
    return said is Agent or (isinstance(said, str) and said.rpartition(".")[2] == Agent.__name__)
