"""What is built and installed: one top-level package, and every file that it needs.

The distributions are built once, from a copy of the sources, with what is installed here:
nothing is downloaded. A checkout without symbolic links, as Git for Windows makes it, is one that
git makes here when it is told that there are none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("echelons", "graphs", "nodes", "checkpoints")
LINKED = PARTS[1:]
NOT_SOURCES = shutil.ignore_patterns(
    *(
        ".git",
        ".venv*",
        ".editable",
        ".*_cache",
        ".compat-*",
        ".peers",
        ".hypothesis",
        ".langgraph_api",
    ),
    *("__pycache__", "*.egg-info", "build", "dist", "*.sqlite*", "node_modules"),
)
FOR_THE_TESTS = (
    *("Makefile", "langgraph.json", "pyproject.toml", "setup.py", ".ci/run", ".gitignore"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs/turns.md"),
    *("notebooks/01_a_first_tree.ipynb", "tests/conftest.py", "tests/fixtures/before_rooms.db"),
)
"""What a source distribution has beside the package: one of each kind."""
SAMPLE = (
    "tests/docs/test_pages.py",
    "tests/scenarios/test_stored_databases.py::"
    "test_what_is_stored_today_has_every_name_that_was_stored_before",
)
"""Tests that read what stands beside the package."""


def run(*command: str | Path, cwd: Path) -> str:
    done = tried(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def tried(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # What the tests import from, and how they are run, must not leak into what is tried.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYT")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def built(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return tried(sys.executable, "-m", "build", "--no-isolation", *options, cwd=cwd)


def sources(folder: Path) -> Path:
    """Return a copy of what stands here, committed or not."""
    copied = folder / "echelons"
    shutil.copytree(ROOT, copied, symlinks=True, ignore=NOT_SOURCES)
    return copied


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist, and of the wheel that was built from that sdist."""
    copied = sources(tmp_path_factory.mktemp("sources"))
    done = built("--outdir", "dist", cwd=copied)
    assert done.returncode == 0, done.stdout + done.stderr
    return copied / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def packed(wheel: Path) -> set[PurePosixPath]:
    """The paths of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {PurePosixPath(name) for name in archive.namelist() if not name.endswith("/")}


def sources_of(part: str) -> set[PurePosixPath]:
    """Return where the wheel must have the files of one of the four folders."""
    prefix = PurePosixPath("echelons", "" if part == "echelons" else part)
    return {
        prefix / path.relative_to(ROOT / prefix).as_posix()
        for path in (ROOT / prefix).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_installs_one_top_level_package(packed: set[PurePosixPath]) -> None:
    top = {path.parts[0] for path in packed}

    assert {name for name in top if not name.endswith(".dist-info")} == {"echelons"}


@pytest.mark.parametrize("part", PARTS)
def test_the_wheel_holds_every_file_of_each_folder(packed: set[PurePosixPath], part: str) -> None:
    assert sources_of(part)
    assert sources_of(part) <= packed


def test_the_wheel_holds_nothing_but_the_four_folders(packed: set[PurePosixPath]) -> None:
    ours = {path for part in PARTS for path in sources_of(part)}

    assert {path for path in packed if path.parts[0] == "echelons"} == ours


def test_the_wheel_is_marked_as_typed(packed: set[PurePosixPath]) -> None:
    assert PurePosixPath("echelons/py.typed") in packed


def test_the_source_distribution_holds_plain_files_only(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()

    assert not [member.name for member in members if member.issym() or member.islnk()]
    inside = {PurePosixPath(*PurePosixPath(member.name).parts[1:]) for member in members}
    for part in PARTS:
        assert sources_of(part) <= inside


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a source distribution unpacks to."""
    (sdist,) = dist.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


def test_the_source_distribution_holds_what_the_tests_need(unpacked: Path) -> None:
    assert [each for each in FOR_THE_TESTS if not (unpacked / each).is_file()] == []
    programs = {
        path.relative_to(ROOT)
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert [path for path in programs if not (unpacked / path).is_file()] == []


def test_the_tests_run_in_an_unpacked_source_distribution(unpacked: Path) -> None:
    home = run(sys.executable, "-c", "import echelons; print(echelons.__file__)", cwd=unpacked)
    assert Path(home).is_relative_to(unpacked)

    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SAMPLE, cwd=unpacked
    )

    assert re.search(r"\d+ passed", done.splitlines()[-1]), done


@pytest.fixture(scope="module")
def without_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that has small text files in place of symbolic links."""
    if not (ROOT / "echelons" / LINKED[0]).is_symlink():
        pytest.skip("there are no links here, as in a source distribution")
    folder = tmp_path_factory.mktemp("windows")
    origin = sources(folder)
    run("git", "init", "-q", cwd=origin)
    run("git", "add", "-A", cwd=origin)
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    run("git", *author, "commit", "-q", "-m", "All", cwd=origin)
    run("git", "clone", "-q", "-c", "core.symlinks=false", origin, folder / "clone", cwd=folder)
    return folder / "clone"


def test_a_checkout_without_symbolic_links_builds_the_same_wheel(
    without_links: Path, packed: set[PurePosixPath], tmp_path: Path
) -> None:
    assert (without_links / "echelons" / "graphs").read_text(encoding="utf-8") == "../graphs"

    done = built("--wheel", "--outdir", str(tmp_path), cwd=without_links)

    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        assert {PurePosixPath(name) for name in archive.namelist()} == packed


def test_what_needs_symbolic_links_says_how_to_get_them(
    without_links: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(without_links, checkout)
    editable = "import setuptools.build_meta as backend; backend.build_editable('.')"

    refused = [
        built("--sdist", cwd=checkout),
        tried(sys.executable, "-c", editable, cwd=checkout),
    ]

    for each in refused:
        assert each.returncode != 0
        assert "This checkout has no symbolic links" in each.stdout + each.stderr
    told = re.findall(r"^ +(git .*)$", refused[0].stdout + refused[0].stderr, re.MULTILINE)
    assert len(told) == 2
    for command in told:
        run(*shlex.split(command), cwd=checkout)
    assert all((checkout / "echelons" / part).is_symlink() for part in LINKED)
    assert built("--sdist", cwd=checkout).returncode == 0


def install(wheel: Path, home: Path) -> Path:
    """Return the Python of a new environment with the wheel and what we depend on."""
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    # To give the environment a pip of its own takes longer than all the rest.
    options = ("install", "--no-index", "--no-deps", "--no-compile", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *options, cwd=home.parent)
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home.parent
    )
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def test_import_without_symbolic_links_says_how_to_get_them(without_links: Path) -> None:
    for module in ("echelons", "echelons.graphs", "echelons.checkpoints.clock"):
        done = tried(sys.executable, "-c", f"import {module}", cwd=without_links)

        error = done.stderr.splitlines()[-1]
        assert error.startswith("ImportError: this checkout of Echelons has no symbolic links")
        assert "`git config core.symlinks true`" in error
        assert "`git checkout -- echelons/checkpoints echelons/graphs echelons/nodes`" in error


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("app") / "venv")


def test_an_app_keeps_its_own_folders_beside_ours(installed: Path, tmp_path: Path) -> None:
    for name in ("graphs", "nodes", "checkpoints"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"OWNER = 'the app: {name}'\n", encoding="utf-8")
    (tmp_path / "app.py").write_text(
        "import checkpoints, graphs, nodes\n"
        "import echelons.checkpoints, echelons.graphs, echelons.nodes\n"
        "print(graphs.OWNER, nodes.OWNER, checkpoints.OWNER, sep='; ')\n"
        "print(echelons.__file__, echelons.graphs.__file__, sep='\\n')\n",
        encoding="utf-8",
    )

    owners, top, ours = run(installed, "app.py", cwd=tmp_path).splitlines()

    assert owners == "the app: graphs; the app: nodes; the app: checkpoints"
    assert Path(ours).parents[1] == Path(top).parent
    assert Path(top).is_relative_to(installed.parents[1])


def test_the_installed_command_answers(installed: Path, tmp_path: Path) -> None:
    assert "echelons" in run(installed.with_name("echelons"), "--help", cwd=tmp_path)


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with an editable install of a checkout."""
    folder = tmp_path_factory.mktemp("editable")
    checkout = sources(folder)
    if not (checkout / "echelons" / LINKED[0]).is_symlink():
        pytest.skip("there are no links here, as in a source distribution")
    code = "import setuptools.build_meta as backend; backend.build_editable('..')"
    run(sys.executable, "-c", code, cwd=checkout)
    (wheel,) = folder.glob("*.whl")
    return install(wheel, folder / "venv")


def test_editable_install_follows_the_checkout(editable: Path, tmp_path: Path) -> None:
    (editable.parents[2] / "echelons" / "nodes" / "added.py").write_text("", encoding="utf-8")

    run(editable, "-c", "import echelons.nodes.added, echelons.graphs.level_graph", cwd=tmp_path)

    refused = tried(editable, "-c", "import graphs", cwd=tmp_path)
    assert refused.stderr.endswith("No module named 'graphs'\n")


@pytest.mark.parametrize(
    "checker",
    [
        ("mypy", "--follow-imports=skip", "--cache-dir=/dev/null", "--python-executable"),
        ("pyright", "--pythonpath"),
    ],
    ids=lambda checker: str(checker[0]),
)
def test_type_checkers_see_an_editable_install(
    editable: Path, checker: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip(checker[0])
    seen = [f"import {'.'.join(dict.fromkeys(('echelons', part)))}" for part in PARTS]
    (tmp_path / "app.py").write_text(
        "\n".join([*seen, "import echelons.missing", "import graphs"]), encoding="utf-8"
    )

    done = tried(sys.executable, "-m", *checker, editable, "app.py", cwd=tmp_path)

    assert [int(line) for line in re.findall(r"app\.py:(\d+):.*error", done.stdout)] == [5, 6]
