"""Answers are left only to a run that takes them (`AnswerMark`)."""

from __future__ import annotations

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.turns import AnswerMark, mark_answers_left
from echelons.checkpoints.ledger import build_key


def test_no_answers_are_left_to_a_run_that_takes_none() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        ledger = saver.ledger

        def is_left() -> bool:
            return ledger.commit(lambda open_: mark_answers_left(open_, "t"))

        with ledger.lease(build_key("t")) as lease:
            assert not is_left()
            mark = AnswerMark("t", lease.fence)
            ledger.commit(mark.open)
            assert is_left()
            ledger.commit(mark.close)
            assert not is_left()
            ledger.commit(mark.open)
        with ledger.lease(build_key("t")):
            assert not is_left()
