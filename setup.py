"""Finds the packages, also in a checkout without symbolic links; all else is in `pyproject.toml`.

Inside `echelons/` a relative symbolic link leads to each of three folders beside it. Git on Windows
(`core.symlinks=false`) and most unzip programs write a small text file in place of a link. A wheel
is then built from the folders themselves; what needs the links stops, and says what to do.
"""

import sys
from pathlib import Path

from setuptools import find_packages, setup

LINKED = ("checkpoints", "graphs", "nodes")
NEEDS_LINKS = {"sdist", "editable_wheel", "develop"}
TO_DO = """
This checkout has no symbolic links: {missing} should be links, and are not.
An editable install and a source distribution need them; `pip install .` does not. To get them
(on Windows, turn developer mode on first), run in the checkout:

    git config core.symlinks true
    git checkout -- {missing}
"""

missing = [part for part in LINKED if not Path("echelons", part).is_dir()]
if missing and NEEDS_LINKS.intersection(sys.argv):
    sys.exit(TO_DO.format(missing=" ".join(f"echelons/{part}" for part in missing)))

packages = find_packages(include=["echelons", "echelons.*"])
for part in missing:
    packages += [f"echelons.{part}", *(f"echelons.{part}.{each}" for each in find_packages(part))]

setup(packages=packages, package_dir={f"echelons.{part}": part for part in missing})
