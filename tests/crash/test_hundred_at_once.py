"""A hundred conversations in one event loop, on a file that another process writes to."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from collections.abc import AsyncIterator
from pathlib import Path

from echelons import Session, SqliteCheckpointer
from echelons.testing.crash import Writer
from tests.crash.drivers.trip import TURNS, Client, Place, seen, told, tree

CONVERSATIONS = 100
