"""A folder of documents as a team: every folder an agent, every document an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from echelons.agent import Agent
from echelons.offline.planner import OfflinePlanner
from echelons.teams.research.corpus import ROOT_NAME, DocumentFolder, build_agent_name
from echelons.teams.research.library import (
    DocumentLibrary,
    build_document_prompt,
    build_folder_prompt,
    describe_document,
    describe_folder,
    map_agent_paths,
)
from echelons.teams.research.survey import Survey, SurveyedDocument, merge_telling_words, survey
from echelons.teams.research.tools import DocumentSearch, build_tools


def team(docs: Path | str | Survey) -> Agent:
    """Return the team that answers from the documents in a folder.

    An agent without subordinates has one document in its context and tools to search and
    quote it; one with subordinates stands for a folder. Names depend on paths alone, so a
    stored run can be resumed after documents have been added. `survey` lists skipped files.

    Raises:
        TeamError: There is nothing at `docs`; `docs` is a file; there is no readable document in
            it.
    """
    read = docs if isinstance(docs, Survey) else survey(docs)
    searches = {
        path: DocumentSearch(item.document, read.vocabulary) for path, item in read.surveyed.items()
    }
    library = DocumentLibrary(read, searches, map_agent_paths(read.tree))
    root = _build_folder_agent(read.tree, read, ROOT_NAME, searches)
    return replace(
        root, model=OfflinePlanner(sharing=library, describe_nearest=library.describe_nearest)
    )


def _build_folder_agent(
    folder: DocumentFolder, read: Survey, name: str, searches: Mapping[str, DocumentSearch]
) -> Agent:
    subordinates = [
        *(
            _build_folder_agent(file, read, build_agent_name(file.path), searches)
            for file in folder.folders
        ),
        *(
            _build_document_agent(read.surveyed[document.path], searches[document.path])
            for document in folder.documents
        ),
    ]
    description = describe_folder(
        folder, [read.surveyed[document.path].title for document in folder.iterate_documents()]
    )
    return Agent(
        name,
        description,
        prompt=build_folder_prompt(description, read.skipped if name == ROOT_NAME else ()),
        subordinates=subordinates,
        capabilities=merge_telling_words(subordinate.capabilities for subordinate in subordinates),
    )


def _build_document_agent(reading: SurveyedDocument, search: DocumentSearch) -> Agent:
    return Agent(
        build_agent_name(reading.document.path),
        describe_document(reading),
        prompt=build_document_prompt(reading),
        tools=build_tools(search),
        capabilities=reading.capabilities,
    )
