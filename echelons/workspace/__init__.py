"""Workspaces: folders in which agents read files, and to which they propose changes.

`paths` says what a path may be, `files` opens what it names without following a link, `changes`
holds what an agent would change, and `merging` puts it into the folder.
"""

from echelons.workspace.files import Workspace
from echelons.workspace.paths import check_path

__all__ = ["Workspace", "check_path"]
