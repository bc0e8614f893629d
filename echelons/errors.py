"""Every error that Echelons raises by name.

One tree under :class:`EchelonsError`. Each error keeps its facts in typed fields and
builds a message that gives the value, the limit and the way out, so that a caller can
catch by type, a program can read the fields, and a person can read the text.
"""

from __future__ import annotations

from collections.abc import Sequence


class EchelonsError(Exception):
    """The root of all errors of this library."""


class ModelError(EchelonsError):
    """A model cannot be used as it was asked for."""


class ModelKeyMissing(ModelError):
    """A named model needs a key, and the environment has none.

    Attributes:
        model: The model as it was named, ``"openai:gpt-5-mini"``.
        variable: The environment variable that would hold the key.
    """

    def __init__(self, model: str, variable: str) -> None:
        self.model = model
        self.variable = variable
        super().__init__(
            f"model {model!r} needs a key, and {variable} is not set; "
            f"set {variable}, or leave the model out to use the offline planner"
        )


class UnknownModel(ModelError):
    """A model is named in a way that no provider here understands.

    Attributes:
        model: The name as it was given.
        known: The forms that are understood.
    """

    def __init__(self, model: str, known: Sequence[str]) -> None:
        self.model = model
        self.known = tuple(known)
        super().__init__(
            f"unknown model {model!r}; known forms are {', '.join(self.known)}, "
            "or pass any LangChain chat model object"
        )
