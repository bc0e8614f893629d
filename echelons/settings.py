"""Immutable pydantic models: `Settings`, which users make, and `StoredModel`, kept as JSON."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from echelons.errors import EchelonsError, InvalidSetting, UnreadableRecord
from echelons.text.error_lines import describe_error


class Settings(BaseModel):
    """Named values with defaults, checked when it is made.

    Raises:
        InvalidSetting: A value is out of its range, or has an unknown name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool(cls, value: Any, info: ValidationInfo) -> Any:
        # Python's booleans are integers, and pydantic takes them for 0 and 1.
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation is not bool:
            raise ValueError("Input should be no bool")
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            fault, owner = error.errors()[0], type(self)
            inner = fault.get("ctx", {}).get("error")
            if isinstance(inner, InvalidSetting):
                raise inner from error
            why = f"{fault['msg'].removeprefix('Value error, ')}; leave it out for the default"
            if fault["type"] == "extra_forbidden":
                why = f"there is no such setting, but {', '.join(owner.model_fields)}"
            # Of a setting with several types, pydantic adds which one, such as `constrained-float`.
            name = ".".join(str(error) for error in fault["loc"] if str(error).isidentifier())
            raise InvalidSetting(owner.__name__, name, fault["input"], why) from error
        except EchelonsError:
            raise
        except Exception as error:
            # Pydantic passes on what the methods of a value raise, but not of which one.
            why = f"reading them raised {describe_error(error)}"
            raise InvalidSetting(type(self).__name__, "settings", values, why) from error


class StoredModel(BaseModel):
    """A model that is stored as JSON, without the fields that have their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def stored(self) -> dict[str, Any]:
        """Return it as JSON, without what it does not have."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def load(cls, stored: object) -> Self:
        """Return it from the JSON of `stored`, without the fields of a newer version.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            return cls.model_validate(stored, extra="ignore")
        except ValidationError as error:
            raise UnreadableRecord(cls.__name__, str(error)) from error
