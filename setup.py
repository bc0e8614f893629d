"""Finds the packages, also in a checkout without symbolic links; all else is in `pyproject.toml`.

Inside `echelons/` a relative symbolic link leads to each of three folders beside it. Git on Windows
(`core.symlinks=false`) and most unzip programs write a small text file in place of a link. A wheel
is then built from the folders themselves; what needs the links stops, and says what to do.

An editable install puts `.editable/` on the path, which holds a link to `echelons/` and nothing
else. Type checkers do not see the import hook that setuptools would install, and the checkout
itself on the path would make its `graphs/`, `nodes/` and `tests/` importable.
"""

import sys
from pathlib import Path

from setuptools import find_packages, setup

LINKED = ("checkpoints", "graphs", "nodes")
EDITABLE = {"editable_wheel", "develop"}
TO_DO = """
This checkout has no symbolic links: {missing} should be links, and are not.
An editable install and a source distribution need them; `pip install .` does not. To get them
(on Windows, turn developer mode on first), run in the checkout:

    git config core.symlinks true
    git checkout -- {missing}
"""

missing = [part for part in LINKED if not Path("echelons", part).is_dir()]
if missing and {"sdist", *EDITABLE}.intersection(sys.argv):
    sys.exit(TO_DO.format(missing=" ".join(f"echelons/{part}" for part in missing)))

package_dir = {f"echelons.{part}": part for part in missing}
if EDITABLE.intersection(sys.argv):
    link = Path(".editable", "echelons")
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path("..", "echelons"), target_is_directory=True)
    package_dir = {"": link.parent.name}

packages = find_packages(package_dir.get("", "."), include=["echelons", "echelons.*"])
for part in missing:
    packages += [f"echelons.{part}", *(f"echelons.{part}.{name}" for name in find_packages(part))]

setup(packages=packages, package_dir=package_dir)
