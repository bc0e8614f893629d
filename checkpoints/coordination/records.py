"""`Records`: records of one kind under a root's thread, typed, versioned, seen by branch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from echelons.checkpoints.ledger import Json, RecordKind, Transaction, build_key
from echelons.checkpoints.queries import CheckpointParents, LatestCheckpointId, ReadPlan
from echelons.errors import LedgerDamaged
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY

T = TypeVar("T")
_SCALARS = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Branch:
    """The checkpoints by which a root has come to its present one."""

    current: str
    # Of each earlier one, the checkpoint that follows it on this branch.
    next_ones: Mapping[str, str]
    # Of each checkpoint of the thread, the first that followed it.
    first_children: Mapping[str, str]
    stored: Collection[str]  # the checkpoints of the root that are stored
    oldest: str  # the earliest of them on this branch

    def sees(self, after: str) -> bool:
        """Return whether the branch sees what was written after a checkpoint of the root."""
        if after in ("", self.current):
            return True
        if after in self.next_ones:
            return self.next_ones[after] == self.first_children[after]
        # Of what was pruned, no other branch is left.
        return after not in self.stored and after < self.oldest

    def has(self, checkpoint_id: str) -> bool:
        """Return whether a stored checkpoint is one of the branch."""
        return checkpoint_id == self.current or checkpoint_id in self.next_ones

    def goes_on_from(self, after: str) -> bool:
        """Return whether the thread has gone on from a checkpoint to the present one, unforked.

        A fork of it sees what was written there, and is another line of the conversation.
        """
        # Ids grow along the branch.
        ways = ((start, end) for start, end in self.next_ones.items() if start >= after)
        return self.sees(after) and all(self.first_children[start] == end for start, end in ways)


START_BRANCH: Final = Branch("", {}, {}, (), "")
"""The branch of a thread that has no checkpoint yet."""


def get_checkpoint(key: str) -> str:
    """Return the checkpoint of the root that a key ends with."""
    return unquote(key.rpartition("/")[2])


def get_root_checkpoint(configurable: Mapping[str, Any]) -> str:
    """Return the checkpoint of the root at which a task runs; empty if there is none."""
    return str((configurable.get(CHECKPOINT_MAP_KEY) or {}).get("", ""))


def read_latest_branch(thread_id: str) -> ReadPlan[Branch]:
    """Return the branch of a thread on which it goes on."""
    latest: str | None = yield LatestCheckpointId(thread_id)
    return (yield from read_branch(thread_id, latest)) if latest else START_BRANCH


def read_branch(thread_id: str, current: str) -> ReadPlan[Branch]:
    """Return the branch of a thread that leads to a checkpoint of its root."""
    parents: Mapping[str, str | None] = yield CheckpointParents(thread_id)
    return build_branch(parents, current)


def build_branch(parents: Mapping[str, str | None], current: str) -> Branch:
    """Return the branch that leads to a checkpoint, by the parents of those that are stored."""
    # Its id grows with the time at which it was made.
    first_children: dict[str, str] = {}
    for child in sorted(parents):
        first_children.setdefault(parents[child] or "", child)
    next_ones: dict[str, str] = {}
    # What is not stored before its end is run from the latest checkpoint.
    place = current if current in parents else max(parents, default=current)
    if place != current:
        next_ones[place] = current
        first_children.setdefault(place, current)
    while (parent := parents.get(place)) is not None and parent in parents:
        next_ones[parent] = place
        place = parent
    return Branch(current, next_ones, first_children, parents, place)


def plan_moves(
    parents: Mapping[str, str | None],
    kept: Collection[str],
    written: Iterable[str],
    sees: Callable[[Branch, str], bool] = Branch.sees,
) -> dict[str, str | None]:
    """Return after which checkpoints records belong once only some checkpoints are kept.

    With the new checkpoint the kept branches see what they have seen before; it is `None` if none
    of them has seen the record. Kept records are left out.
    """
    left = {checkpoint: parent for checkpoint, parent in parents.items() if checkpoint in kept}
    ends = sorted(left.keys() - left.values(), reverse=True)
    before = {end: build_branch(parents, end) for end in ends}
    then = {end: build_branch(left, end) for end in ends}
    oldest = sorted({branch.oldest for branch in then.values()})
    # What was written after the deleted parent of one is seen by all that came later.
    places = [parent for checkpoint in oldest if (parent := left[checkpoint])] + oldest + [""]
    moves: dict[str, str | None] = {}
    for after in {*written}:
        # The latest counts most, where no place is right for all.
        seen = {end: sees(before[end], after) for end in ends if end != after}
        if not any(seen.values()):
            if after not in kept or any(sees(then[end], after) for end in seen):
                moves[after] = None
            continue

        def rate(place: str, seen: Mapping[str, bool] = seen) -> list[bool]:
            return [sees(then[end], place) is wanted for end, wanted in seen.items()]

        if not all(rate(after)):
            moves[after] = max(places, key=lambda place: (rate(place)[0], sum(rate(place))))
    return moves


After: TypeAlias = Literal["", "value", "items", "key"]
"""Where a record has the checkpoint of the root after which it was written: in its field `after`,
in that of each of its items, at the end of its key, or nowhere, as all branches see it."""


class Record(NamedTuple, Generic[T]):
    """A record as a transaction has read it."""

    key: str
    value: T
    version: int

    @property
    def last_part(self) -> str:
        """The last part of its name."""
        return _get_last(self.key)


class Records(RecordKind[T]):
    """The records of one kind. Each method takes a thread's id and the parts of a record's name.

    Records of a kind whose keys end with a checkpoint, and that does not merge them, have versions:
    one for each checkpoint after which they were written. The key of a version ends with that
    checkpoint and the one by which branches see it: the same, until it is pruned.
    """

    def __init__(  # noqa: PLR0913  each option stands for itself
        self,
        name: str,
        shape: Any,
        after: After = "",
        *,
        sees: Callable[[Branch, str], bool] = Branch.sees,
        merge: Callable[[T, T], T] | None = None,
        drop: Callable[[Transaction, tuple[str, ...]], None] | None = None,
        raw: int = 0,
        omit: Collection[str] = (),
        to_json: Callable[[T], Json] | None = None,
        is_copied: bool = True,
        names_thread: bool = False,
        marks_copies: bool = False,
    ) -> None:
        super().__init__(name, shape)
        # Where a record has the checkpoint after which it was written.
        self.after = after
        # Whether a branch sees what was written after a checkpoint.
        self.sees = sees
        # Whether a copy of the thread gets them.
        self.is_copied = is_copied
        # Whether a record has `thread_id` and `agent_thread_id`, for SQL.
        self.names_thread = names_thread
        # Whether a record has `inherited`, which is true in a copy of the thread.
        self.marks_copies = marks_copies
        # Makes one of two records that pruning gives the same key.
        self._merge = merge
        # Is called after pruning has deleted a record that no branch sees.
        self._drop = drop
        # How many parts of a name keys have as they are; the others are quoted.
        self._raw = raw
        # Fields that are not stored while they are empty.
        self._omit = omit
        # By default its fields.
        self._to_json = to_json
        self._fields = [field.name for field in fields(shape)] if is_dataclass(shape) else []
        # Returns a tuple, also of one field.
        self._get_fields = attrgetter("__class__", *self._fields)

    def key(self, thread_id: str, *parts: str) -> str:
        """Return the key of a record; with `""` at the end, how the keys of several begin."""
        return _build_key(self.name, self._raw, thread_id, *parts)

    def split(self, key: str) -> tuple[str, ...]:
        """Return the thread's id and the parts of the name of the record under a key."""
        _, thread_id, _, *parts = key.split("/")
        return unquote(thread_id), *map(unquote, parts)

    def encode(self, value: T) -> Json:
        """Return the JSON of a record."""
        if self._to_json:
            return self._to_json(value)
        if not self._fields:
            plain: Json = _encode(value)
            return plain
        _, *values = self._get_fields(value)
        record = dict(zip(self._fields, values, strict=True))
        # Most have nothing but scalars, and are stored before each step.
        if not _SCALARS.issuperset(map(type, values)):
            record = {name: _encode(part) for name, part in record.items()}
        for name in self._omit:
            if not record[name]:
                del record[name]
        return record

    def find(self, open_: Transaction, thread_id: str, *parts: str) -> Record[T] | None:
        """Return a record, `None` if there is none.

        Raises:
            LedgerDamaged: The stored value is no record of the kind.
        """
        return self.load(open_, self.key(thread_id, *parts))

    def get(self, open_: Transaction, thread_id: str, *parts: str) -> T | None:
        """Return the value of a record, `None` if there is none."""
        record = open_.get_record(self, self.key(thread_id, *parts))
        return record.value if record else None

    def load(self, open_: Transaction, key: str) -> Record[T] | None:
        """Return the record under a key, `None` if there is none."""
        stored = open_.get_record(self, key)
        return Record(key, *stored) if stored else None

    def find_all(self, open_: Transaction, thread_id: str, *parts: str) -> list[Record[T]]:
        """Return all records whose names begin with some parts, in the order of their keys."""
        keys = open_.list_keys(self.key(thread_id, *parts, ""))
        return [record for key in keys if (record := self.load(open_, key))]

    def list_names(self, open_: Transaction, thread_id: str, *parts: str) -> list[str]:
        """Return the last parts of the names that begin with some, also of damaged records."""
        return [_get_last(key) for key in open_.list_keys(self.key(thread_id, *parts, ""))]

    def add(self, open_: Transaction, value: T, thread_id: str, *parts: str) -> bool:
        """Store a new record; return whether there was none of its name."""
        key = self.key(thread_id, *parts)
        return open_.compare_and_set(key, None, self.encode(value)) is not None

    def put(self, open_: Transaction, value: T, thread_id: str, *parts: str) -> int:
        """Store a record in place of the one of its name, if there is one; return its version."""
        before = self.find(open_, thread_id, *parts)
        return self._set(
            open_, self.key(thread_id, *parts), before.version if before else None, value
        )

    def change(
        self, open_: Transaction, make: Callable[[T | None], T], thread_id: str, *parts: str
    ) -> T:
        """Store what a function makes of a record, or of `None`, if it differs; return it."""
        key = self.key(thread_id, *parts)
        before = self.load(open_, key)
        value = make(before.value if before else None)
        if before is None or value != before.value:
            self._set(open_, key, before.version if before else None, value)
        return value

    def store(self, open_: Transaction, before: Record[T], value: T) -> int:
        """Store a record in place of one that was read in this transaction; return its version."""
        return self._set(open_, before.key, before.version, value)

    def _set(self, open_: Transaction, key: str, version: int | None, value: T) -> int:
        return open_.set_read(key, version, self.encode(value), is_plain=False)

    # Pruning.

    def list_whole(self, open_: Transaction, thread_id: str) -> list[Record[T]]:
        """Return all records of a thread; damaged ones are reported where they are read."""
        records: list[Record[T]] = []
        for key in open_.list_keys(self.key(thread_id, "")):
            with suppress(LedgerDamaged):
                if record := self.load(open_, key):
                    records.append(record)
        return records

    def list_afters(self, record: Record[Any]) -> list[str]:
        """Return the checkpoints after which a record was written, `""` for all branches."""
        match self.after:
            case "items":
                return [item.after for item in record.value]
            case "value":
                return [record.value.after]
            case "key":
                return [record.last_part]
            case _:
                return [""]

    def move(
        self, open_: Transaction, records: Sequence[Record[T]], moves: Mapping[str, str | None]
    ) -> None:
        """Let records belong to other checkpoints; to `None` those that no branch sees."""
        match self.after:
            case "value":
                self._move_values(open_, records, moves)
            case "items":
                self._move_items(open_, records, moves)
            case "key":
                self._move_keys(open_, records, moves)

    def _move_values(
        self, open_: Transaction, records: Sequence[Record[Any]], moves: Mapping[str, str | None]
    ) -> None:
        for record in records:
            if record.value.after not in moves:
                continue
            if (to := moves[record.value.after]) is not None:
                self.store(open_, record, replace(record.value, after=to))
                continue
            open_.discard(record.key)
            if self._drop:
                self._drop(open_, self.split(record.key))

    def _move_items(
        self, open_: Transaction, records: Sequence[Record[Any]], moves: Mapping[str, str | None]
    ) -> None:
        for record in records:
            if any(item.after in moves for item in record.value):
                places = ((item, moves.get(item.after, item.after)) for item in record.value)
                items: Any = [replace(item, after=to) for item, to in places if to is not None]
                self.store(open_, record, items)

    def _move_keys(
        self, open_: Transaction, records: Sequence[Record[T]], moves: Mapping[str, str | None]
    ) -> None:
        """Move records whose keys end with a checkpoint; of two versions, keep the later."""
        kept: dict[tuple[str, str], tuple[str, T]] = {}
        for record in records:  # the versions of a record in the order in which they were written
            stem, _, after = record.key.rpartition("/")
            to = moves.get(unquote(after), unquote(after))
            if to is None:
                continue
            name, value = stem if self._merge else stem.rpartition("/")[0], record.value
            if self._merge and (name, to) in kept:
                value = self._merge(kept[name, to][1], value)
            kept[name, to] = f"{stem}/{quote(to, safe='')}", value
        moved, stored = dict(kept.values()), {record.key: record for record in records}
        for key in stored.keys() - moved.keys():
            open_.discard(key)
        for key, value in moved.items():
            before = stored.get(key)
            if before is None or before.value != value:
                self._set(open_, key, before.version if before else None, value)


class Versions(Generic[T]):
    """The versions of records that one branch sees: of each record, the last that it has."""

    def __init__(self, kind: Records[T], branch: Branch, thread_id: str, *parts: str) -> None:
        self._kind = kind
        self._branch = branch
        self._name = thread_id, *parts

    def find(self, open_: Transaction, *parts: str) -> Record[T] | None:
        """Return the version of a record, `None` if the branch sees none."""
        return self._find_last(open_, open_.list_keys(self._kind.key(*self._name, *parts, "")))

    def list(self, open_: Transaction) -> dict[str, Record[T]]:
        """Return the versions of all records, by the last parts of their names, as in keys."""
        prefix = self._kind.key(*self._name, "")
        keys: dict[str, list[str]] = {}
        for key in open_.list_keys(prefix):
            keys.setdefault(key.removeprefix(prefix).rsplit("/", 2)[0], []).append(key)
        last = {name: self._find_last(open_, versions) for name, versions in keys.items()}
        return {name: record for name, record in last.items() if record}

    def replace(self, open_: Transaction, before: Record[T] | None, value: T, *parts: str) -> bool:
        """Store a version if a record is still the one that was read; return whether it was."""
        key = self._build_key(parts)
        expected = before.version if before and before.key == key else None
        return open_.compare_and_set(key, expected, self._kind.encode(value)) is not None

    def remove(self, open_: Transaction, before: Record[T], removed: T, *parts: str) -> bool:
        """Remove a record if it is still the one that was read; return whether it was.

        If other branches have versions, `removed` is stored in its place.
        """
        key = self._build_key(parts)
        if [before.key] == open_.list_keys(self._kind.key(*self._name, *parts, "")) == [key]:
            return open_.delete(key, before.version)
        return self.replace(open_, before, removed, *parts)

    def _find_last(self, open_: Transaction, keys: Iterable[str]) -> Record[T] | None:
        # The ids of checkpoints grow along a branch.
        for key in sorted(keys, reverse=True):
            if self._kind.sees(self._branch, _get_last(key)):
                return self._kind.load(open_, key)
        return None

    def _build_key(self, parts: Sequence[str]) -> str:
        checkpoint = self._branch.current
        return self._kind.key(*self._name, *parts, checkpoint, checkpoint)


class BranchView:
    """The records that one branch of a thread sees. The branch is read once a record needs it."""

    def __init__(self, thread_id: str, current: str | None = None) -> None:
        self._thread_id = thread_id
        # The root's checkpoint that the branch leads to; the latest if left out.
        self._current = current
        self._branch: Branch | None = None

    def select(self, kind: Records[T], records: Sequence[Record[T]]) -> ReadPlan[list[Record[T]]]:
        """Plan: those of some records that the branch sees."""
        afters = {record.key: kind.list_afters(record)[0] for record in records}
        if all(after in ("", self._current) for after in afters.values()):
            return [*records]
        if self._branch is None:
            self._branch = yield from (
                read_latest_branch(self._thread_id)
                if self._current is None
                else read_branch(self._thread_id, self._current)
            )
        return [record for record in records if kind.sees(self._branch, afters[record.key])]


def move_records(
    open_: Transaction,
    thread_id: str,
    parents: Mapping[str, str | None],
    kept: Collection[str],
    kinds: Iterable[Records[Any]],
) -> None:
    """Let the records of a thread belong to checkpoints that are kept; drop those of no branch.

    Without its checkpoint, a record of an abandoned branch could not be told from one of the past
    of the branches that are kept.
    """
    for kind in kinds:
        if kind.after and (records := kind.list_whole(open_, thread_id)):
            written = {after for record in records for after in kind.list_afters(record)}
            kind.move(open_, records, plan_moves(parents, kept, written, kind.sees))


def _encode(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _get_last(key: str) -> str:
    return unquote(key.rpartition("/")[2])


@lru_cache(maxsize=4096)
def _build_key(name: str, raw: int, thread_id: str, *parts: str) -> str:
    quoted = (part if place < raw else quote(part, safe="") for place, part in enumerate(parts))
    return "/".join((build_key(thread_id, name), *quoted))
