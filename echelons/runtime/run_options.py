"""The options that a session passes to its runs, validated: `RunOptions`.

Tools of all levels read it. Only the metadata and the stored keys are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Self

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, Callbacks
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.threads.store import is_written_by_library
from echelons.errors import invalid_note, invalid_option
from echelons.identity.lineage import STORED_KEYS_KEY
from echelons.langgraph_internals import OWN_CONFIG_KEYS
from echelons.runtime.session_requests import SessionThread
from echelons.text.error_lines import is_secret_name, remember_secrets
from echelons.text.input_limits import (
    ID_PATTERN,
    NOTE_BYTES,
    check_metadata,
    copy_plain,
    is_label,
    list_items,
    measure_size,
    read_text,
    refuse_unreadable,
    shorten_repr,
)

_TAKEN = "checkpoints have metadata of this name already; choose another"
_SCALARS = (str, int, float)
_NUMBER = re.compile(r"[-+]?[\d.]+")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options that a session passes to its runs; see `Session` for the fields."""

    metadata: Mapping[str, Any]
    context: Any
    configurable: Mapping[str, Any]
    callbacks: Callbacks
    tags: Sequence[str]
    stored_keys: Sequence[str]

    @classmethod
    def check(
        cls,
        metadata: Mapping[str, Any] | None,
        context: Any,
        configurable: Mapping[str, Any] | None,
        callbacks: Callbacks,
        tags: Sequence[str],
        stored_keys: Sequence[str],
    ) -> Self:
        """Return validated options."""
        notes, keys = check_metadata(metadata), _check_texts("stored_keys", stored_keys)
        for key in filter(is_written_by_library, notes):
            raise invalid_note(shorten_repr(key), _TAKEN)
        configured = _check_configurable(configurable)
        for key in keys:
            if why := _explain_unstorable(key, notes):
                raise invalid_option("stored_keys", shorten_repr(key), why)
            if key not in configured:
                continue
            value = configured[key]
            if not issubclass(type(value), _SCALARS):
                why = f"it is of type {type(value).__name__}; only texts, numbers, true and false"
                raise invalid_option(
                    "stored_keys", f"{key}={shorten_repr(value)}", f"{why} are stored"
                )
            configured[key] = copy_plain(value, "metadata and stored_keys", NOTE_BYTES)[0]
        handlers = _check_callbacks(callbacks)
        options = cls(notes, context, configured, handlers, _check_texts("tags", tags), keys)
        measure_size(options.stored_metadata, "metadata and stored_keys", NOTE_BYTES)
        return options

    @property
    def stored_metadata(self) -> dict[str, Any]:
        """The metadata of each checkpoint: the notes, and the stored keys with their names."""
        kept = {key: self.configurable[key] for key in self.stored_keys if key in self.configurable}
        return {**self.metadata, **kept, **({STORED_KEYS_KEY: " ".join(kept)} if kept else {})}

    def check_saver(self, saver: object) -> None:
        """Refuse to hand a saver of another kind what it would store although it must not."""
        if isinstance(saver, SqliteCheckpointer) or not isinstance(saver, BaseCheckpointSaver):
            return
        for key, value in self.configurable.items():
            if key not in self.stored_keys and isinstance(value, _SCALARS):
                kind = type(saver).__name__
                why = f"{kind} stores every text and number of it; name it in stored_keys=, pass it"
                why += " in context=, or use the path of a database"
                raise invalid_option("configurable", shorten_repr(key), why)

    def complete(self, stored: Mapping[str, Any]) -> RunOptions:
        """Return the options with the keys that a continued turn has stored, if they lack them."""
        if not stored and not self.stored_keys:
            return self
        restored = {key: stored[key] for key in stored if key not in self.configurable}
        configured = {**self.configurable, **restored}
        for key in self.stored_keys:
            if key not in configured:
                why = (
                    "configurable= has no such key, and this turn has not stored it; give it there"
                )
                raise invalid_option("stored_keys", shorten_repr(key), why)
        keys = tuple(dict.fromkeys((*self.stored_keys, *restored)))
        return replace(self, configurable=configured, stored_keys=keys) if restored else self

    def build_config(self, thread: SessionThread) -> RunnableConfig:
        """Return the LangGraph config of a run."""
        callbacks = self.callbacks
        # LangGraph adds tags and handlers to the manager that it is given.
        if isinstance(callbacks, BaseCallbackManager):
            callbacks = callbacks.copy()
        return {
            "configurable": {**self.configurable, "thread_id": thread.id},
            "metadata": {**self.stored_metadata, "thread_name": thread.name},
            "callbacks": callbacks,
            "tags": list(self.tags),
        }


def _check_texts(option: str, value: Any) -> tuple[str, ...]:
    """Return the texts of an argument."""
    with _refuse_unreadable_option(option, value):
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            raise invalid_option(option, shorten_repr(value), "it is no list of texts")
        texts = list_items(value)
    for text in texts:
        if not is_label(text):
            raise invalid_option(option, shorten_repr(text), "it is no text that can be printed")
    return tuple(read_text(text) or "" for text in texts)


def _check_callbacks(callbacks: Any) -> Callbacks:
    if callbacks is None or issubclass(type(callbacks), BaseCallbackManager):
        return callbacks  # type: ignore[no-any-return]
    is_list = issubclass(type(callbacks), (list, tuple))
    with _refuse_unreadable_option("callbacks", callbacks):
        handlers = list_items(callbacks) if is_list else [callbacks]
    for handler in handlers:
        if not is_list or not issubclass(type(handler), BaseCallbackHandler):
            why = "give a list of LangChain's callback handlers, or a callback manager"
            raise invalid_option("callbacks", shorten_repr(handler), why)
    return handlers


def _check_configurable(configurable: Any) -> dict[str, Any]:
    if configurable is None:
        return {}
    with _refuse_unreadable_option("configurable", configurable):
        if not isinstance(configurable, Mapping):
            raise invalid_option("configurable", shorten_repr(configurable), "it is no mapping")
        entries = list_items(configurable.items())
        for key, _ in entries:
            if why := _explain_unusable(read_text(key)):
                raise invalid_option("configurable", shorten_repr(key), why)
        configured = {read_text(key) or "": value for key, value in entries}
        remember_secrets(configured)
        return configured


def _refuse_unreadable_option(option: str, value: object) -> AbstractContextManager[None]:
    return refuse_unreadable(lambda why: invalid_option(option, shorten_repr(value), why))


def _explain_unusable(key: str | None) -> str:
    """Return why a key of `configurable` cannot be passed; empty if it can."""
    if key is None or not is_label(key):
        return "a key is a text that can be printed"
    if key.startswith("__"):
        return "names that begin with '__' are LangGraph's and ours; choose another"
    if key.isnumeric() or _NUMBER.fullmatch(key):
        return "a number is no name; choose one with a letter"
    if key in OWN_CONFIG_KEYS:
        return "LangGraph reads this name itself; the session sets the thread"
    return ""


def _explain_unstorable(key: str, notes: Mapping[str, Any]) -> str:
    """Return why a key of `configurable` cannot be stored; empty if it can."""
    if why := _explain_unusable(key):
        return why
    if not ID_PATTERN.fullmatch(key):
        return "use letters, digits, '.', '_', ':' and '-'"
    if key in notes:
        return "metadata= has the same name; choose another for one of them"
    if is_written_by_library(key):
        return _TAKEN
    if is_secret_name(key):
        why = "by its name it is a secret, and what is stored is not encrypted; "
        return f"{why}leave it out here, and give it again at a resume"
    return ""
