"""Agents' names are valid, unique, and made of nothing but their own path."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echelons.teams.research.documents import ROOT_NAME, build_agent_name
from echelons.tree.names import check_name

part = st.one_of(
    st.text("abA_-.1 é", min_size=1, max_size=6),
    st.sampled_from(["README", "run", "reason", ROOT_NAME, "n_1", "a.md", "a.txt", "x-12345678"]),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
)
path = st.lists(part, min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("README", "README"),
        ("guides", "guides"),
        ("guides/circuit-breakers.md", "guides__circuit-breakers_md"),
        ("guides/my_notes.txt", "guides__my_notes_txt"),
        ("2024/01.rst", "n_2024__01_rst"),
    ],
)
def test_ordinary_paths_have_readable_names(path: str, name: str) -> None:
    assert build_agent_name(path) == name


@given(st.sets(path, max_size=30))
@example({"a/b.md", "a__b.md", "a_b.md", "a b.md", "A/b.md", "a/b_md", "a/b", "1", "n_1"})
def test_different_paths_have_different_valid_names(paths: set[str]) -> None:
    names = {check_name(build_agent_name(path)) for path in paths}

    assert len(names) == len(paths)
    assert ROOT_NAME not in names


@given(path)
def test_a_hashed_name_is_no_other_paths_plain_name(path: str) -> None:
    name = build_agent_name(path)

    assert build_agent_name(name) != name or name == path


def test_names_are_the_same_in_another_process() -> None:
    paths = ["notes/Überblick (neu).md", "run", "a" * 90, "東京/天気.md"]
    code = (
        "from echelons.teams.research.documents import build_agent_name\n"
        f"print([build_agent_name(p) for p in {paths}])"
    )
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )

    assert run.stdout.strip() == str([build_agent_name(path) for path in paths])
