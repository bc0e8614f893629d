"""The sample teams as graphs for LangGraph's local server and Studio.

Only `langgraph.json` refers to this module, because importing it compiles both teams. The
server provides the checkpointer, so none is compiled in.
"""

from __future__ import annotations

import os
from pathlib import Path

from echelons.teams.research.team import team as research_team
from echelons.teams.travel.team import team as travel_team

DOCS_VARIABLE = "ECHELONS_DOCS"
"""The environment variable that names the research team's folder."""


def find_documents_folder() -> Path:
    """Return the folder of the research team; the library's own documentation by default."""
    named = os.environ.get(DOCS_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / "docs"


travel = travel_team().compile()
research = research_team(find_documents_folder()).compile()
