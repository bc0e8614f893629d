"""A feature's name stands only in its folder, in the registry and in the public surface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.gates.figures import CORE, OUTSIDE, check
from tests.gates.sources import Source, sources, split_words

SYNONYMS: Final = {
    "mail": "mail mails mailbox mailboxes steer steers steering intervention interventions sibling",
    "memory": "memory summary summaries summarize recall pin pins pinned",
    "monitors": "monitor monitors alert alerts verdict verdicts",
    "questions": "question questions ask_user ask_superior ask_later asker inbox",
    "approvals": "approval approvals approve approves approved review reviews reviewed reviewer",
    "budget": "budget budgets allowance allowances grant grants granted charge charges charged "
    "reserve reserved reservation price prices",
    "spawning": "spawn spawns spawned spawning spawnable mortal mortals drone drones",
    "dismissal": "dismiss dismisses dismissed dismissal dismissals",
    "workspace": "workspace workspaces proposal proposals proposed file_tools",
    "notes": "notes shared_note note_tools",
    "aliases": "alias aliases theme themes",
    "middleware": "middleware middlewares",
}
"""What each feature is called: words, and words that follow each other in a name."""
OTHER_MEANINGS: Final = {
    "memory": "in_memory memory_ledger memory_saver memory_error",
    "aliases": "type_alias by_alias",
}
"""Names of Python's and pydantic's, and of what is kept in the memory of a process."""
PUBLIC: Final = (
    *("__init__.py", "__main__.py", "agent.py", "human.py", "errors/", "workspace_tools.py"),
    *("runtime/session.py", "runtime/session_requests.py", "runtime/session_run.py"),
    *("runtime/run_events.py", "checkpoints/threads/store.py", "tools/"),
    # Teams and test doubles use the library as an application does.
    *("teams/", "testing/"),
)
"""The public surface: what users import, and the options that they hand in."""
LOOP: Final = ("nodes/", "graphs/", "guards/gate.py", "checkpoints/coordination/gate.py")
"""The loop and its gate, which know no feature at all."""


def find_outside(feature: str) -> Iterator[tuple[Source, set[str]]]:
    """Yield the modules outside its place that name a feature, with the names."""
    home = (f"features/{feature}/", "features/registry.py", f"{feature}/", *PUBLIC)
    synonyms = [tuple(synonym.split("_")) for synonym in SYNONYMS[feature].split()]
    others = [tuple(other.split("_")) for other in OTHER_MEANINGS.get(feature, "").split()]
    for source in sources():
        if source.name.startswith(home):
            continue
        names = {
            name for name in source.names if contains(name, synonyms) and not contains(name, others)
        }
        if names:
            yield source, names


def contains(name: str, phrases: list[tuple[str, ...]]) -> bool:
    words = split_words(name)
    return any(
        words[start : start + len(phrase)] == phrase
        for phrase in phrases
        for start in range(len(words) - len(phrase) + 1)
    )


@pytest.mark.parametrize("feature", SYNONYMS)
def test_modules_that_name_a_feature(feature: str) -> None:
    outside = list(find_outside(feature))
    core = [source for source, _ in outside if source.name.startswith(LOOP)]
    evidence = [f"{source.name}: {', '.join(sorted(names))}" for source, names in outside]

    check(f"modules that name {feature}", len(outside), OUTSIDE[feature], evidence)
    check(f"modules of the core that name {feature}", len(core), CORE[feature], evidence)


def test_names_are_found_by_their_words() -> None:
    assert contains("TreeBudgets", [("budgets",)])
    assert contains("_may_ask_user", [("ask", "user")])
    assert not contains("task_users", [("ask", "user")])
    assert not contains("explain", [("pin",), ("plain",)])
