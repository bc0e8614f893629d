"""What ``make hosts`` starts: these tests with the packages of ``pins.txt``, where they are.

The environment is made once, beside those of the peers; anew when the pins have changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[0] = str(ROOT)

if __name__ == "__main__":
    from benchmarks.peers.environments import interpreter

    folder = Path(__file__).parent
    python = interpreter("hosts", pins=folder / "pins.txt")
    command = [str(python), "-m", "pytest", str(folder), *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
