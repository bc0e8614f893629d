"""A folder of documents as a team: every folder an agent, every document an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from echelons.agent import Agent
from echelons.models.planner import OfflinePlanner
from echelons.teams.research import prompts
from echelons.teams.research.agent_names import ROOT, name_of
from echelons.teams.research.corpus import Folder
from echelons.teams.research.library import Library, ways
from echelons.teams.research.survey import Reading, Survey, survey
from echelons.teams.research.tools import Desk, tools
from echelons.teams.research.word_weights import merged


def team(docs: Path | str | Survey) -> Agent:
    """Return the team that answers from the documents in a folder.

    An agent without subordinates has one document in its context and tools to search and
    quote it; one with subordinates stands for a folder. Names depend on paths alone, so a
    stored run can be resumed after documents have been added. `survey` lists skipped files.

    Args:
        docs: The folder: Markdown, reStructuredText and other text, nested to any depth; or
            the result of `survey`.

    Raises:
        FolderMissing: There is nothing at `docs`.
        NotAFolder: `docs` is a file.
        NothingToRead: There is no readable document in it.
    """
    read = docs if isinstance(docs, Survey) else survey(docs)
    desks = {path: Desk(each.document, read.known) for path, each in read.readings.items()}
    library = Library(read, desks, ways(read.tree))
    root = _folder(read.tree, read, ROOT, desks)
    return replace(root, model=OfflinePlanner(sharing=library))


def _folder(folder: Folder, read: Survey, name: str, desks: Mapping[str, Desk]) -> Agent:
    subordinates = [
        *(_folder(each, read, name_of(each.path), desks) for each in folder.folders),
        *(_document(read.readings[each.path], desks[each.path]) for each in folder.documents),
    ]
    description = prompts.of_folder(
        folder, [read.readings[each.path].title for each in folder.every()]
    )
    return Agent(
        name,
        description,
        prompt=prompts.for_folder(description, read.skipped if name == ROOT else ()),
        subordinates=subordinates,
        capabilities=merged(each.capabilities for each in subordinates),
    )


def _document(reading: Reading, desk: Desk) -> Agent:
    return Agent(
        name_of(reading.document.path),
        prompts.of_document(reading),
        prompt=prompts.for_document(reading),
        tools=tools(desk),
        capabilities=reading.capabilities,
    )
