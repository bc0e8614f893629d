"""Workspaces: folders in which agents read files, and to which they propose changes.

`paths` says what a path may be, `files` opens what it names without following a link, `changes`
holds what an agent would change and merges it into the folder, `search` finds texts in files, and
`notes` has the limits of notes.
"""

from echelons.workspace.files import Workspace
from echelons.workspace.paths import check_path

__all__ = ["Workspace", "check_path"]
