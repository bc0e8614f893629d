"""An environment of its own for each peer, with the versions that are pinned in ``pins/``.

Made by ``make bench-peers`` under a folder that git ignores and ``make clean`` removes; made
anew only when the pins have changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PINS = Path(__file__).parent / "pins"
FOLDER = Path(__file__).parents[2] / ".peers"


class NotInstallable(Exception):
    """A peer's environment could not be made; the text is the installer's last word."""


Installer = Callable[[Path, Path], None]
"""Makes an environment in a folder, with the packages of a file of pins."""


def install(place: Path, pins: Path) -> None:
    """Make an environment with uv where uv is, else with pip.

    Raises:
        NotInstallable: It could not be made.
    """
    for command in _commands(place, _python_in(place), pins):
        _run(command)


def interpreter(
    name: str, folder: Path = FOLDER, install: Installer = install, pins: Path | None = None
) -> Path:
    """Return the Python of a peer's environment, made if need be.

    Args:
        name: The peer, as its file of pins is named.
        folder: Where the environments are.
        install: Makes an environment.
        pins: A file of pins; the peer's if left out.

    Raises:
        NotInstallable: It could not be made; nothing of it is left.
    """
    pins = pins or PINS / f"{name}.txt"
    place = folder / name
    python, ready = _python_in(place), place / ".pins"
    wanted = pins.read_text(encoding="utf-8")
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    try:
        install(place, pins)
    except NotInstallable:
        shutil.rmtree(place, ignore_errors=True)
        raise
    ready.write_text(wanted, encoding="utf-8")
    return python


def _python_in(place: Path) -> Path:
    return place / "bin" / "python"


def _commands(place: Path, python: Path, pins: Path) -> list[list[str]]:
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(place)],
            [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pins)],
        ]
    return [
        [sys.executable, "-m", "venv", "--without-pip", str(place)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "-r", str(pins)],
    ]


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines() or ["no word why"]
        errors = [line for line in said if line.lower().startswith("error")]
        raise NotInstallable((errors or said)[-1])
