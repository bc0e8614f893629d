"""What is wrong with a team's folder: each fault has its file and line, and none hides another."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelons import Agent, EchelonsError
from echelons.profiles.builder import check_team_folder
from echelons.profiles.reader import read_team
from echelons.profiles.settings_file import MAX_FILE_BYTES
from tests.echelons.profiles.conftest import Write
from tests.error_codes import raises_code

TOOL = 'def add(first: int) -> int:\n    """Add one."""\n    return first + 1\n'
GOOD = {
    "prompt.md": "You lead.\n",
    "settings.toml": 'description = "Leads"\n',
    "default/prompt.md": "You work.\n",
    "default/tools/shared.py": TOOL.replace("add", "share"),
    "north/settings.toml": 'description = "Looks north"\n',
    "north/east/prompt.md": "You look east.\n",
    "north/east/tools/sums.py": TOOL,
}


def faults(folder: Path) -> list[tuple[str, str, str]]:
    """Return the places, kinds and reasons of what is wrong with a folder."""
    return [(each.place, each.error, each.why) for each in check_team_folder(folder)[1]]


def test_a_folder_is_the_tree_and_files_that_an_agent_lacks_come_from_default(write: Write) -> None:
    team, found = check_team_folder(write(GOOD))

    assert found == ()
    assert [(each.name, each.folder) for each in team.profiles] == [
        ("office", "."),
        ("north", "north"),
        ("east", "north/east"),
    ]
    assert [each.values["prompt"] for each in team.profiles] == [
        "You lead.",
        "You work.",
        "You look east.",
    ]
    east = team.root.subordinates[0].subordinates[0]
    assert [each.signature for each, _ in east.declared["tools"]] == ["(first: int)"]


@pytest.mark.parametrize(
    ("file", "text", "place", "kind", "said"),
    [
        ("north/settings.toml", "a = 1\nb = = 2\n", ":2", "TOMLDecodeError", "is no TOML: Invalid"),
        ("north/settings.toml", 'a = "open', ":1", "TOMLDecodeError", "it is no TOML"),
        ("north/settings.toml", "x = 1\n\nmodle = 'a'", ":3", "UnknownKey", "mean 'model'? an ag"),
        ("north/settings.toml", "[limits]\ndpeth = 2", ":2", "UnknownKey", "did you mean 'depth'?"),
        ("north/settings.toml", "[limits]\ndepth = 99", ":2", "InvalidSetting", "Limits(depth=99)"),
        ("north/settings.toml", "limits = 5", ":1", "InvalidField", "limits=5; pass a value of"),
        ("north/settings.toml", "model = 7", ":1", "InvalidField", "model=7"),
        ("north/settings.toml", 'builtin_tools = "ask"', ":1", "InvalidField", "'ask'; pass a va"),
        ("north/settings.toml", '\nbuiltin_tools = ["reprot"]', ":2", "InvalidField", "'report', "),
        ("north/settings.toml", "prompt = 7", ":1", "InvalidField", "prompt=7"),
        ("north/settings.toml", 'name = "two words"', ":1", "InvalidName", "'two words'"),
        ("north/settings.toml", 'name = "reason"', ":1", "InvalidName", "a node of every level"),
        ("west/settings.toml", 'name = "east"', ":1", "DuplicateName", "'north/east' is called"),
        ("north/settings.toml", "[limits]\ncalls = 2", ":2", "InnerLimits", "limits on calls"),
        ("north/settings.toml", "tools = 'share'", ":1", "InvalidField", "is no list of names"),
        ("north/settings.toml", "tools = ['shara']", ":1", "UnknownTool", "mean 'share'? it decl"),
        ("north/settings.toml", "tools = ['../x']", ":1", "UnknownTool", "it declares share"),
        ("north/settings.toml", "subordinates = ['west']", ":1", "UnknownAgent", "folders are: e"),
        (
            "north/settings.toml",
            "[delegation.breaker]\nseconds = 1\nfailures = 0",
            ":3",
            "InvalidSetting",
            "BreakerPolicy(failures=0)",
        ),
        (
            "north/settings.toml",
            "[capabilities]\nfood = 0.5\ndining = 2",
            ":3",
            "InvalidCapability",
            "'dining' with confidence 2",
        ),
        (
            "north/settings.toml",
            "[capabilities.food]\nconfidence = 0.5\nexample = ['x']",
            ":3",
            "InvalidSetting",
            "a capability has confidence, examples",
        ),
        (
            "north/settings.toml",
            '[permissions.approvals]\nadd = "ask"\nsubtract = "ask"',
            ":3",
            "UnknownTool",
            "a rule names a tool",
        ),
        (
            "settings.toml",
            '[permissions]\napprovals = {add = "perhaps"}',
            ":2",
            "InvalidSetting",
            "'allow', 'ask', 'deny'",
        ),
        (
            "north/settings.toml",
            "[permissions.spawn]\nlevels = 1\nprofiles = ['eats']",
            ":3",
            "UnknownProfile",
            "did you mean 'east'? put it into default/eats/",
        ),
        (
            "north/settings.toml",
            "[permissions.spawn]\nprofiles = 'east'",
            ":2",
            "InvalidSetting",
            "tuple",
        ),
        (
            "north/settings.toml",
            "[delegation.context]\ntokens = 3\nevent = 2",
            ":3",
            "UnknownKey",
            "'delegation.context.event'; did you mean 'events'?",
        ),
        (
            "north/settings.toml",
            "[delegation]\nbreaker = {failure = 2}",
            ":2",
            "UnknownKey",
            "did you mean 'failures'?",
        ),
        (
            "north/settings.toml",
            "[delegation.context]\ntokens = 0",
            ":2",
            "InvalidSetting",
            "tokens",
        ),
        ("north/settings.toml", "[permissions]\ntools = ['ad']", ":2", "UnknownTool", "'ad'"),
        (
            "north/settings.toml",
            "[permissions.spawn]\nlevels = 1\ntools = ['add']",
            ":3",
            "UnknownTool",
            "a tool of its own",
        ),
        (
            "north/east/settings.toml",
            "[permissions]\ncontact_user = true\npaths = ['docs']",
            ":3",
            "PermissionsWidened",
            "'docs'",
        ),
        (
            "north/settings.toml",
            "[[monitors]]\nname = 'one'\n[[monitors]]\nname = 'two'\nevery_event = 3",
            ":5",
            "UnknownKey",
            "did you mean 'every_events'?",
        ),
        (
            "north/settings.toml",
            "[[monitors]]\nname = 'one'\n[monitors.budget]\ncall = 3",
            ":4",
            "UnknownKey",
            "did you mean 'calls'?",
        ),
        ("north/settings.toml", "[guidance]\nreport = 'x'", ":2", "UnknownKey", "mean 'reports'?"),
        ("north/settings.toml", "contract = 'x'", ":1", "UnknownKey", "is a class of Python"),
        ("north/settings.toml", "theme = 'bird'", ":1", "InvalidTheme", "none of birds"),
        ("north/settings.toml", "theme = '../../other.txt'", ":1", "OutsideFolder", "copy it"),
        ("north/settings.toml", "theme = '/etc/hostname'", ":1", "OutsideFolder", "copy it"),
        ("north/settings.toml", f"x = {'9' * 9000}", ":1", "ValueError", "it is no TOML: Exceeds"),
        ("north/settings.toml", f"x = {'[' * 9000}", ":1", "", "it is no TOML"),
        ("north/east/tools/_bad.py", "def f(:\n", ":1", "SyntaxError", "it is no Python"),
        ("north/east/tools/bad.py", "x = 1\ndef f(:\n", ":2", "SyntaxError", "it is no Python"),
        ("north/east/tools/nul.py", "x = 1\0", "", "", "it is no Python"),
        ("north/east/tools/bare.py", "\ndef f(): ...\n", ":2", "UnknownTool", "has no docstring"),
        ("north/east/tools/none.py", "import os\n", "", "UnknownTool", "it declares no tool"),
        ("north/east/tools/all.py", "__all__ = ['f']", ":1", "NameError", "names 'f', which"),
        ("north/east/tools/two.py", TOOL, ":1", "DuplicateName", "sums.py:1 declares 'add'"),
        ("north/east/tools/own.py", TOOL.replace("add", "report"), ":1", "InvalidName", "'report'"),
        ("north/prompts/report.md", "x", "", "UnknownFile", "did you mean 'reports.md'? it has id"),
        ("north/prompts/reports.txt", "x", "", "UnknownFile", "did you mean 'reports.md'?"),
        ("north/default/prompt.md", "x", "", "UnknownFile", "only the team's own folder"),
        ("south/Prompt.md", "x", "", "UnknownFile", "did you mean 'prompt.md'?"),
        ("south/setings.toml", "x = 1", "", "UnknownFile", "did you mean 'settings.toml'?"),
        ("2nd/prompt.md", "x", "", "InvalidName", "'2nd' is no valid agent name"),
        ("south/east/prompt.md", "x", "", "DuplicateName", "'north/east' is called 'east' too"),
    ],
)
def test_each_fault_has_its_file_and_line(
    write: Write, file: str, text: str, place: str, kind: str, said: str
) -> None:
    grant = "[permissions]\npaths = ['notes']\n" if kind == "PermissionsWidened" else ""
    folder = write({**GOOD, "north/settings.toml": grant, "north/prompt.md": "x", file: text})
    (folder.parent / "other.txt").write_text("secret")

    found = faults(folder)

    assert [why for _, _, why in found if said in why], found
    ((where, error, _),) = [each for each in found if said in each[2]]
    assert where.startswith(file.rpartition("/")[0])
    assert where.endswith(f"{file}{place}" if place else where)
    assert not kind or error == kind
    with raises_code("invalid_profile") as refused:
        Agent.from_folder(folder, trusted=True)
    assert refused.value.faults


def test_all_faults_are_found_and_not_only_the_first(write: Write) -> None:
    folder = write(
        {
            **GOOD,
            "north/settings.toml": "modle = 1\n[limits]\nsteps = 0\nwidht = 1\n",
            "north/east/tools/sums.py": "def f(:",
            "west/settings.toml": "= 1",
        }
    )

    assert [each[0] for each in faults(folder)] == [
        "north/east/tools/sums.py:1",
        "north/settings.toml:1",
        "north/settings.toml:3",
        "north/settings.toml:4",
        "west/settings.toml:1",
    ]


def test_middleware_of_agents_that_take_none_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelons.profiles.reader.get_field_types", lambda: {"tools": None})

    folder = write({**GOOD, "north/middleware/log.py": "class Log: ..."})

    assert faults(folder) == [
        ("north/middleware/log.py", "UnknownFile", "agents have no middleware: remove it")
    ]


def test_an_agent_without_a_prompt_anywhere_is_named(write: Write) -> None:
    folder = write({"prompt.md": "x", "north/settings.toml": "", "notes.d/page.md": "no agent"})

    assert [each[:2] for each in faults(folder)] == [("north", "PromptMissing")]


def test_a_prompt_that_stands_twice_is_named(write: Write) -> None:
    folder = write({"prompt.md": "x", "settings.toml": "\nprompt = 'y'"})

    assert [each[:2] for each in faults(folder)] == [("settings.toml:2", "DuplicateName")]


def test_a_guidance_that_stands_twice_is_named(write: Write) -> None:
    files = {"prompt.md": "x", "settings.toml": "\nguidance = ''", "prompts/reports.md": "Report."}

    assert [each[:2] for each in faults(write(files))] == [("settings.toml:2", "DuplicateName")]


@pytest.mark.parametrize("target", ["..", "../..", "/", "../../other"])
def test_a_link_out_of_the_folder_is_not_followed(
    write: Write, tmp_path: Path, target: str
) -> None:
    folder = write(GOOD)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "prompt.md").write_text("secret")
    (folder / "north" / "up").symlink_to(target, target_is_directory=True)

    ((place, kind, why),) = faults(folder)

    expected = "CyclicTree" if target == ".." else "OutsideFolder"
    assert (place, kind) == ("north/up", expected)
    assert "secret" not in why


def test_a_file_that_is_a_link_out_of_the_folder_is_not_read(write: Write, tmp_path: Path) -> None:
    folder = write({"settings.toml": "description = 'x'"})
    (tmp_path / "outside.md").write_text("secret")
    (folder / "prompt.md").symlink_to("../outside.md")

    assert [each[:2] for each in faults(folder)] == [("prompt.md", "OutsideFolder")]


def test_folders_that_link_to_each_other_are_a_cycle(write: Write) -> None:
    folder = write({"prompt.md": "x", "default/prompt.md": "x"})
    for one, other in (("north", "south"), ("south", "north")):
        (folder / one).mkdir()
        (folder / one / f"to_{other}").symlink_to(f"../{other}", target_is_directory=True)

    assert {each[1] for each in faults(folder)} >= {"CyclicTree"}


def test_a_link_inside_the_folder_is_followed(write: Write) -> None:
    folder = write(GOOD)
    (folder / "north" / "prompt.md").symlink_to("../default/prompt.md")

    assert faults(folder) == []


def test_a_broken_link_is_named(write: Write) -> None:
    folder = write(GOOD)
    (folder / "north" / "prompt.md").symlink_to("nowhere.md")

    ((place, _, why),) = faults(folder)
    assert (place, "cannot be read" in why) == ("north/prompt.md", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["north", "north/east/prompt.md"])
def test_what_may_not_be_read_is_named(write: Write, name: str) -> None:
    folder = write(GOOD)
    (folder / name).chmod(0)
    try:
        found = faults(folder)
    finally:
        (folder / name).chmod(0o700)

    assert (name, "PermissionError") in [each[:2] for each in found]


def test_a_folder_that_cannot_be_listed_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(GOOD)
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path == folder / "north":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)

    assert [each for each in faults(folder) if each[0] == "north"] == [
        ("north", "PermissionError", "it cannot be read: Permission denied")
    ]


def test_a_prompt_that_cannot_be_read_is_not_called_missing_too(write: Write) -> None:
    folder = write({"prompt.md": "x"})
    (folder / "prompt.md").write_bytes(b"\xff")

    assert [each[:2] for each in faults(folder)] == [("prompt.md:1", "UnicodeDecodeError")]


def test_a_file_of_another_encoding_is_named_with_its_line(write: Write) -> None:
    folder = write(GOOD)
    (folder / "north" / "prompt.md").write_bytes("Grüße\nCafé\n".encode()[:-3] + b"\xe9\n")

    ((place, kind, why),) = faults(folder)
    assert (place, kind) == ("north/prompt.md:2", "UnicodeDecodeError")
    assert "save the file as UTF-8" in why


def test_a_huge_file_is_not_read_whole(write: Write) -> None:
    folder = write(GOOD)
    with (folder / "north" / "prompt.md").open("wb") as file:
        file.truncate(10**12)  # sparse

    ((place, kind, why),) = faults(folder)
    assert (place, kind) == ("north/prompt.md", "FileTooLarge")
    assert str(MAX_FILE_BYTES) in why


def test_a_pipe_in_place_of_a_file_holds_nothing_up(write: Write) -> None:
    folder = write(GOOD)
    os.mkfifo(folder / "north" / "prompt.md")

    assert [each[:2] for each in faults(folder)] == [("north/prompt.md", "InvalidFile")]


def test_a_tree_that_is_too_deep_is_named_once(write: Write) -> None:
    deep = "/".join(f"level{number}" for number in range(1, 40))
    folder = write({"prompt.md": "x", "default/prompt.md": "x", f"{deep}/prompt.md": "x"})

    ((place, kind, _),) = faults(folder)
    assert (place.count("/"), kind) == (31, "TreeTooDeep")


def test_of_five_thousand_folders_each_is_listed_a_few_times(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write({"prompt.md": "x", "default/prompt.md": "x"})
    for number in range(50):
        for inner in range(100):
            (folder / f"group{number}" / f"agent{number}_{inner}").mkdir(parents=True)
    listed: list[object] = []
    scandir = os.scandir

    def count(path: Path) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", count)

    team, found = check_team_folder(folder)

    assert found == ()
    assert sum(1 for _ in team.profiles) == 5051
    assert len(listed) < 3 * 5051
    monkeypatch.undo()
    shutil.rmtree(folder)  # pytest would keep so many for three runs


def test_more_folders_than_a_team_may_have_are_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelons.profiles.reader.MAX_PROFILES", 3)
    folder = write({f"a{number}/prompt.md": "x" for number in range(9)} | {"prompt.md": "x"})

    assert [each[1] for each in faults(folder)] == ["TooManyProfiles"]


@pytest.mark.parametrize(("given", "said"), [("nowhere", "no such folder"), ("a\0b", "no such")])
def test_what_is_no_folder_is_refused(tmp_path: Path, given: str, said: str) -> None:
    with raises_code("invalid_team", match=said):
        read_team(tmp_path / given)


def test_a_file_in_place_of_the_folder_is_refused(write: Write) -> None:
    with raises_code("invalid_team", match="it is a file; name its folder"):
        read_team(write(GOOD) / "prompt.md")


def test_a_hash_is_that_of_what_the_agent_is_made_of(write: Write, tmp_path: Path) -> None:
    def hashes(folder: Path) -> dict[str, str]:
        return {each.name: each.hash for each in read_team(folder).profiles}

    folder = write(GOOD)
    before = hashes(folder)
    folder.rename(tmp_path / "elsewhere").rename(folder)
    assert hashes(folder) == before

    # A file of its own in place of an equal one of `default` changes nothing.
    write({"north/prompt.md": "You work.\n"})
    assert hashes(folder) == before
    write({"north/east/tools/sums.py": TOOL + "# another\n"})
    assert {name for name, each in hashes(folder).items() if each != before[name]} == {"east"}
    write({"north/east/tools/_shared.py": "WORDS = 1\n"})
    assert read_team(folder).python_files == [
        "north/east/tools/_shared.py",
        "north/east/tools/sums.py",
    ]
    third = hashes(folder)
    write({"north/east/tools/_shared.py": "WORDS = 22\n"})
    assert {name for name, each in hashes(folder).items() if each != third[name]} == {"east"}
    write({"north/settings.toml": "tools = ['share']\n"})
    assert hashes(folder)["north"] != before["north"]


def test_a_theme_is_a_file_beside_the_settings(write: Write) -> None:
    names = [f"Name {chr(65 + number // 26)}{chr(97 + number % 26)}" for number in range(64)]
    files = {**GOOD, "settings.toml": "theme = 'names/ours.txt'"}
    folder = write({**files, "names/ours.txt": "\n".join(names), "names/prompt.md": "x"})

    theme = read_team(folder).root.values["theme"]
    assert (theme.name, theme.names) == ("names/ours.txt", tuple(names))
    before = read_team(folder).root.hash
    write({"names/ours.txt": "\n".join([*names, "Another"])})
    assert read_team(folder).root.hash != before
    write({"names/ours.txt": "\n".join([*names, "4711"])})
    assert [each[:2] for each in faults(folder)] == [("names/ours.txt:65", "InvalidTheme")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["settings.toml", "prompt.md", "tools/a.py", "a/settings.toml", "a/b"]),
        st.binary(max_size=60),
        max_size=4,
    )
)
def test_no_bytes_in_a_folder_raise_anything_but_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    check_team_folder(folder)
    with contextlib.suppress(EchelonsError):
        Agent.from_folder(folder)


def test_the_line_of_a_setting_is_found_in_any_form_of_toml(write: Write) -> None:
    text = (
        '# a comment\ndescription = """\nmany\n[limits]\nlines"""\n\n'
        "[delegation]\nbreaker = {failures = 1, secnds = 2}\n"
        '[capabilities]\n"two words" = [\n  1,\n]\n'
        "[permissions.approvals]\n'add' = 'ask'\n"
    )
    folder = write({**GOOD, "north/settings.toml": text})

    found = [(place, kind) for place, kind, _ in faults(folder)]
    assert found == [
        ("north/settings.toml:8", "UnknownKey"),
        ("north/settings.toml:10", "InvalidCapability"),
    ]
