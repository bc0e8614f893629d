"""A folder becomes a hierarchy: folders above, documents below, each with its own tools."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelons.agent import Agent
from echelons.teams.research import survey, team
from echelons.teams.research.team import MOST_CHARACTERS
from echelons.tree.members import Member, fingerprint_tree, walk_tree
from tests.error_codes import raises_code


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def names(member: Member) -> set[str]:
    return {place.member.name for place in walk_tree(member)}


def agent(root: Agent, name: str) -> Agent:
    found = next(place.member for place in walk_tree(root) if place.member.name == name)
    assert isinstance(found, Agent)
    return found


def test_folders_and_documents_are_the_hierarchy(corpus: Path) -> None:
    root = team(corpus)

    assert {place.path_text for place in walk_tree(root)} == {
        "research",
        "research/README",
        "research/engineering",
        "research/engineering/engineering__backups_txt",
        "research/engineering/engineering__circuit-breakers_md",
        "research/engineering/engineering__time-zones_rst",
        "research/garden",
        "research/garden/garden__bees",
        "research/garden/garden__bees/garden__bees__varroa_rst",
        "research/garden/garden__composting_md",
        "research/kitchen",
        "research/kitchen/kitchen__knives_txt",
        "research/kitchen/kitchen__sourdough_md",
        "research/music",
        "research/music/music__tuning_markdown",
        "research/sea",
        "research/sea/sea__knots_txt",
        "research/sea/sea__tides_md",
    }


def test_only_agents_of_documents_have_tools(corpus: Path) -> None:
    for place in walk_tree(team(corpus)):
        assert isinstance(place.member, Agent)
        assert bool(place.member.tools) is not bool(place.member.subordinates)


def test_descriptions_name_what_is_in_a_folder(corpus: Path) -> None:
    root = team(corpus)

    assert agent(root, "sea").description == "Knows the 2 documents in sea/: Three knots, Tides."
    assert "Three knots" in agent(root, "sea__knots_txt").description
    assert "Knows the 11 documents here" in root.description


def test_a_prompt_holds_the_outline_and_the_numbered_text(corpus: Path) -> None:
    prompt = str(agent(team(corpus), "sea__tides_md").prompt)

    assert "- Tides\n  - Springs and neaps\n" in prompt
    assert "1| # Tides\n" in prompt
    assert "sea/tides.md:LINE" in prompt


def test_a_long_document_stays_out_of_the_prompt(tmp_path: Path) -> None:
    write(tmp_path, {"long.md": "# Long\n\n" + "Words and more words. " * MOST_CHARACTERS})
    prompt = str(agent(team(tmp_path), "long_md").prompt)

    assert len(prompt) < 2_000
    assert "read it with your tools" in prompt


def test_first_agent_reads_unread_messages(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "text", "b/c.md": "text", "empty.md": ""})
    root = team(tmp_path)

    assert "Not read: empty.md (empty)." in str(root.prompt)
    assert "Not read" not in str(agent(root, "b").prompt)


def test_the_survey_reports_what_was_skipped_and_why(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "text", "big.md": "x" * 2**22, "huge.md": "x" * 2**23})
    write(tmp_path, {f"empty{number}.md": "" for number in range(5)})

    assert survey(tmp_path).report() == (
        f"{tmp_path}: 1 read, 7 skipped; empty: 5 (empty0.md, empty1.md, empty2.md, …); "
        "enormous: 2 (big.md, huge.md)"
    )


def test_the_progress_of_a_survey_is_tracked(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "text", "b/c.md": "text", "empty.md": ""})
    tracked: dict[str, int] = {}

    def track(sequence: Iterable[Any], *, description: str) -> Iterator[Any]:
        for each in sequence:
            tracked[description] = tracked.get(description, 0) + 1
            yield each

    assert survey(tmp_path, track) == survey(tmp_path)
    assert tracked == {"Reading files": 3, "Counting words": 2, "Choosing words": 2}


def test_words_of_a_document_reach_every_superior_above_it(corpus: Path) -> None:
    root = team(corpus)

    for name in ("garden__bees__varroa_rst", "garden__bees", "garden", "research"):
        assert agent(root, name).capabilities["varroa"] == 1.0


@pytest.mark.parametrize("name", ["run", "reason", "research", "delegate"])
def test_folders_may_be_called_like_nodes_or_like_the_team(tmp_path: Path, name: str) -> None:
    write(tmp_path, {f"{name}/a.md": "text", "b.md": "text"})

    assert len(names(team(tmp_path))) == 4


def test_documents_of_the_same_name_differ(tmp_path: Path) -> None:
    files = ["a.md", "a.txt", "a.rst", "A.md", "a/a.md", "a__a.md", "a a.md", "ä.md"]
    write(tmp_path, dict.fromkeys(files, "text"))

    assert len(names(team(tmp_path))) >= len(files) + 1


def test_names_stay_when_documents_are_added(tmp_path: Path) -> None:
    write(tmp_path, {"a b.md": "x", "deep/er/c.md": "x", "deep/er/d.md": "x", "z.md": "x"})
    before = names(team(tmp_path))

    write(tmp_path, {"a_b.md": "x", "a-b.md": "x", "deep/new.md": "x", "deep/er/new.md": "x"})

    assert before < names(team(tmp_path))


def test_folders_deeper_than_a_tree_may_be_are_flattened(tmp_path: Path) -> None:
    write(tmp_path, {"d/" * depth + "note.md": "text" for depth in range(60)})
    root = team(tmp_path)

    assert sum(not place.member.subordinates for place in walk_tree(root)) == 60


def test_a_team_can_work_for_others(corpus: Path) -> None:
    head = Agent("head", subordinates=[Agent("desk", subordinates=[team(corpus)])])

    assert "sea__tides_md" in names(head)


def test_wrong_folders_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file.md").write_text("text")
    (tmp_path / "none").mkdir()

    with raises_code("folder_missing"):
        team(tmp_path / "nowhere")
    with raises_code("not_a_folder"):
        team(str(tmp_path / "file.md"))
    with raises_code("nothing_to_read"):
        team(tmp_path / "none")


def test_a_team_is_the_same_in_every_process(corpus: Path) -> None:
    code = (
        "import sys, json\n"
        "from echelons.teams.research import team\n"
        "from echelons.tree.members import fingerprint_tree\n"
        "root = team(sys.argv[1])\n"
        "print(fingerprint_tree(root), json.dumps(dict(root.capabilities)))"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code, str(corpus)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "1"},  # ours is random
    ).stdout

    root = team(corpus)
    assert elsewhere == f"{fingerprint_tree(root)} {json.dumps(dict(root.capabilities))}\n"


part = st.text("abA_-.1 é", min_size=1, max_size=5).filter(lambda name: name[0] not in ". ")
path = st.lists(part, min_size=1, max_size=3).map(lambda parts: "/".join(parts).rstrip(". "))


@settings(max_examples=30)
@given(st.sets(path, min_size=1, max_size=8))
def test_any_names_of_files_and_folders_make_a_team(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str]
) -> None:
    root = tmp_path_factory.mktemp("docs")
    kept = []
    for each in sorted(paths):
        try:
            write(root, {each: "text"})
            kept.append(each)
        except OSError:  # a file stands where this one wants a folder
            continue

    leaves = [place for place in walk_tree(team(root)) if not place.member.subordinates]

    assert len(leaves) == len(kept)


def test_two_thousand_documents_make_a_team_in_seconds(tmp_path: Path) -> None:
    text = "# Note {0}\n\n" + "Some words about subject{0} and its many details here.\n\n" * 20
    write(tmp_path, {f"f{i % 40}/n{i}.md": text.format(i) for i in range(2_000)})

    begun = time.process_time()
    root = team(tmp_path)
    spent = time.process_time() - begun

    assert len(names(root)) == 2_041
    assert spent < 20, f"{spent:.1f} s of CPU"
