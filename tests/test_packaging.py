"""What is built and installed: one top-level package, and every file that it needs.

The distributions are built once, from a copy of the sources, with what is installed here:
nothing is downloaded.
"""

from __future__ import annotations

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
NOT_SOURCES = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "build", "dist", "*.sqlite*", "node_modules"
)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist, and of the wheel that was built from that sdist."""
    sources = tmp_path_factory.mktemp("sources") / "echelons"
    shutil.copytree(ROOT, sources, symlinks=True, ignore=NOT_SOURCES)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", cwd=sources)
    return sources / "dist"


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
        prefix / path.relative_to(ROOT / part).as_posix()
        for path in (ROOT / part).rglob("*")
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
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel, and our dependencies by a path file."""
    home = tmp_path_factory.mktemp("app") / "venv"
    run(sys.executable, "-m", "venv", home, cwd=home.parent)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel, cwd=home.parent)
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home.parent
    )
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


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
