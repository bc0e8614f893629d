"""The sample team `research`: a folder of documents is the hierarchy."""

from echelons.teams.research.documents import Document, DocumentFolder, SkippedFile
from echelons.teams.research.survey import Survey, survey
from echelons.teams.research.team import team

__all__ = ["Document", "DocumentFolder", "SkippedFile", "Survey", "survey", "team"]
