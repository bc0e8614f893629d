"""The rules of the recursive delegation in plain Python: what the engine is held against.

Written from the rules alone: nothing of the library is imported, nothing waits, and nothing is
done at the same time as anything else. Confidences and matches are whole hundredths, so that no
rounding hides a tie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

FULFILLED, PARTIAL, UNABLE, ASKS = "fulfilled", "partial", "unable", "needs_input"
PATH_COST, DEPTH_COST = 5, 1000
"""0.05 of a confidence for each agent on the path; 0.1 of a score for each level down."""


@dataclass(frozen=True)
class Post:
    """An agent's place in a tree.

    Attributes:
        name: Its name.
        below: Who works for it.
        sure: Its declared confidence.
    """

    name: str
    below: tuple[Post, ...] = ()
    sure: int = 90


@dataclass(frozen=True)
class Asking:
    """How a superior asks those below it.

    Attributes:
        whom: Who is named in each request; empty for nobody.
        join: How the answers are joined; empty if it is one request, in a call of its own.
        n: How many make a quorum.
        order: In which order those who are asked come to an end, if that matters.
        splits: Whether the requests are parts of one task, taken apart by the router.
    """

    whom: tuple[str, ...] = ("",)
    join: str = ""
    n: int = 0
    order: tuple[int, ...] = ()
    splits: bool = False

    @property
    def enough(self) -> int:
        """How many fulfilled requests stop the others; 0 if all are waited for."""
        return {"first": 1, "quorum": self.n}.get(self.join, 0)


@dataclass(frozen=True)
class Deed:
    """What an agent does when it is asked.

    Attributes:
        does: How it ends: a status, or ``says`` (a plain answer), ``spent`` (a part, for want of
            budget), ``failed`` (an exception), ``late`` (it takes more time than it has).
        sure: How sure it says it is.
        asks: Whom it asks below itself, if it does, to repeat what it is told.
    """

    does: str = FULFILLED
    sure: int = 50
    asks: Asking | None = None


@dataclass(frozen=True)
class Case:
    """A call of the root.

    Attributes:
        number: Tells it from the others.
        asking: Whom the root asks.
        deeds: What everybody does, by name.
        fits: How well agents match each of the requests, by name; who is left out does not.
        open: Whose circuits are open.
        needs: Who can do each thing that the task needs; empty if it needs one thing.
        parallel: Whether all who fit are asked at once.
    """

    number: int
    asking: Asking
    deeds: Mapping[str, Deed]
    fits: tuple[Mapping[str, int], ...] = ({},)
    open: frozenset[str] = frozenset()
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    parallel: bool = False


@dataclass(frozen=True)
class Answer:
    """What comes of a request.

    Attributes:
        status: How it ended.
        agent: Who answers.
        path: From who asked to who answers; empty if the rules do not say.
        says: What is told, piece by piece.
        why: Why it is not fulfilled, piece by piece.
        sure: The confidence; ``None`` if the rules do not say.
        parts: Of each partial result its pieces.
        below: What those said who were asked.
        spent: Whether it is a part for want of budget.
        calls: Model calls that it cost.
    """

    status: str
    agent: str
    path: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    sure: int | None = 0
    parts: tuple[tuple[str, ...], ...] = ()
    below: tuple[Answer, ...] = ()
    spent: bool = False
    calls: int = 0


class Reference:
    """Plays a case by the rules.

    Args:
        root: The tree.
        case: The case.
        threads: Whether it is played in threads, where nothing can be cut short.
        at_work: Who is asked already in the root's message, to which those are added whom this case
            asks; who is named in it if left out.

    Attributes:
        answer: What the root's call comes to.
        asked: How often each agent was asked.
    """

    def __init__(
        self, root: Post, case: Case, threads: bool = False, at_work: set[str] | None = None
    ) -> None:
        self.case = case
        self._threads = threads
        self.asked: Counter[str] = Counter()
        self._root = root
        self._time_is_over = False
        self._ways: dict[tuple[str, int], list[list[Post]]] = {}
        self.answer = self._call(root, case.asking, at_work)

    # One call: one request, or several that are joined.

    def _call(self, superior: Post, asking: Asking, at_work: set[str] | None = None) -> Answer:
        self._choose(superior, asking, set(asking.whom) if at_work is None else at_work)
        if not asking.join and not asking.splits:
            return self._request(superior, asking, 0)[0]
        join = asking.join or "all"
        answers: dict[int, Answer] = {}
        everybody: dict[int, list[Answer]] = {}
        for place in self._ending(superior, asking):
            won = [each for each in answers.values() if each.status == FULFILLED]
            if asking.enough and len(won) >= asking.enough:
                answers[place] = self._stopped(superior, asking, place)
                everybody[place] = [answers[place]]
            else:
                answers[place], everybody[place] = self._request(superior, asking, place)
        if asking.enough:
            in_time = [place for place in answers if answers[place].status == FULFILLED]
            rest = [place for place in sorted(answers) if place not in in_time]
            ordered = [answers[place] for place in (*in_time, *rest)]
        else:
            ordered = [answers[place] for place in sorted(answers)]
        asked = [each for place in sorted(everybody) for each in everybody[place]]
        joined = self._joined(superior, join, asking.n, ordered)
        return replace(joined, below=_quiet(asked), calls=sum(each.calls for each in asked))

    def _choose(self, superior: Post, asking: Asking, at_work: set[str]) -> None:
        """Find the ways of all requests: of equals, each request gets another."""
        for place in range(len(asking.whom)):
            found = ways(self.case, superior, asking, place, at_work)
            self._ways[superior.name, place] = found
            at_work.update(way[-1].name for way in (found if self.case.parallel else found[:1]))

    def _ending(self, superior: Post, asking: Asking) -> Iterator[int]:
        """Yield the requests as they end: at once whose circuits are open, else as is said."""
        order = asking.order or tuple(range(len(asking.whom)))
        at_once = [place for place in order if not self._begins(superior, asking, place)]
        yield from (*at_once, *(place for place in order if place not in at_once))

    def _begins(self, superior: Post, asking: Asking, place: int) -> bool:
        found = self._ways[superior.name, place]
        return bool(found) and not self.case.open.intersection(each.name for each in found[0])

    def _stopped(self, superior: Post, asking: Asking, place: int) -> Answer:
        way = self._ways[superior.name, place][0]
        name = way[-1].name
        self.asked[name] += 1
        # In an event loop the whole way is cut short; in threads the last agent ends by itself,
        # and if it does so with an exception, it has failed.
        reached = way if self._threads else way[:1]
        path = (superior.name, *(each.name for each in reached))
        fails = self._threads and self.case.deeds[name].does == "failed"
        why = self.mark(name, "cannot") if fails else "stopped"
        return Answer(UNABLE, path[-1], path, why=(why,))

    def _joined(self, superior: Post, join: str, n: int, answers: list[Answer]) -> Answer:
        fulfilled = [each for each in answers if each.status == FULFILLED]
        if join == "all":
            return answers[0] if len(answers) == 1 else _side_by_side(superior, answers)
        if join == "quorum" and fulfilled:
            if len(fulfilled) >= n:
                return _side_by_side(superior, fulfilled[:n])
            short = _side_by_side(superior, answers)
            return replace(short, why=("quorum", *short.why))
        if not fulfilled:
            return self._settled(superior, answers)
        return fulfilled[0] if join == "first" else _best(fulfilled)

    # One request: to who is named, or to all who fit.

    def _request(self, superior: Post, asking: Asking, place: int) -> tuple[Answer, list[Answer]]:
        """Return what comes of a request, and the answers that its superior gets for it."""
        found = self._ways[superior.name, place]
        if not found:
            nobody = Answer(UNABLE, superior.name, (superior.name,), why=("no_candidate",))
            return nobody, [nobody]
        if named(self.case, superior, asking, place):
            answer = self._sent(superior, found[0])
            return answer, [answer]
        if self.case.parallel:
            told = [self._sent(superior, way) for way in found]
            return self._settled(superior, told), told
        told = []
        for way in found:
            told.append(self._sent(superior, way))
            if told[-1].status in (FULFILLED, ASKS):
                break
        settled = self._settled(superior, told)
        return settled, told if len(told) == 1 else [settled]

    def _sent(self, superior: Post, way: Sequence[Post]) -> Answer:
        """Return what comes of sending a request down a way."""
        if superior is self._root:
            self._time_is_over = False
        path = [superior.name]
        for post in way:
            path.append(post.name)
            if self._time_is_over:
                return Answer(UNABLE, post.name, tuple(path), why=("not run", "timeout"))
            if post.name in self.case.open:
                return Answer(UNABLE, post.name, tuple(path), why=("circuit_open",))
        return self._done(way[-1], tuple(path))

    def _done(self, post: Post, path: tuple[str, ...]) -> Answer:
        """Return what an agent answers that is asked."""
        name, deed = post.name, self.case.deeds[post.name]
        self.asked[name] += 1
        if deed.asks:
            told = self._call(post, deed.asks)
            below = _quiet([told])
            if self._time_is_over:
                late = Answer(UNABLE, name, path, why=("timeout",), below=below)
                return replace(late, calls=1 + told.calls)
            return replace(told, agent=name, path=path, parts=(), below=below, calls=2 + told.calls)
        self._time_is_over = deed.does == "late"
        did, cannot = self.mark(name, "did"), self.mark(name, "cannot")
        plain = Answer(FULFILLED, name, path, (did,), sure=post.sure, calls=1)
        said = replace(plain, sure=deed.sure)
        unable = Answer(UNABLE, name, path, calls=1)
        return {
            "says": plain,
            FULFILLED: said,
            PARTIAL: replace(said, status=PARTIAL, why=(cannot,)),
            "spent": replace(said, status=PARTIAL, why=("budget", cannot), spent=True),
            ASKS: replace(said, status=ASKS, says=(self.mark(name, "asks"),)),
            UNABLE: replace(unable, why=(cannot,)),
            "failed": replace(unable, why=(cannot,), calls=0),
            "late": replace(unable, why=("timeout",)),
        }[deed.does]

    def mark(self, name: str, what: str) -> str:
        """Return words of an agent that are nobody else's, and of no other case."""
        return f"<{name} {what} {self.case.number}>"

    # Phase 4: many answers to one request become one.

    def _settled(self, superior: Post, told: Sequence[Answer]) -> Answer:
        fulfilled = [each for each in told if each.status == FULFILLED]
        partial = [each for each in told if each.status == PARTIAL]
        asking = [each for each in told if each.status == ASKS]
        if len(told) == 1 and (not partial or told[0].spent):
            return told[0]
        if fulfilled and not partial:
            answer = _best(fulfilled)
        elif fulfilled:
            answer = _together(superior, FULFILLED, [*fulfilled, *partial], fulfilled)
        elif partial and not asking and any(each.spent for each in partial):
            why = next(each.why for each in _by_preference(partial) if each.spent)
            answer = _together(superior, PARTIAL, partial, partial)
            answer = replace(answer, why=why, spent=True)
        elif partial and not asking and self._cover(partial):
            answer = _together(superior, FULFILLED, partial, partial)
        elif partial or asking:
            answer = _question(superior, partial, asking)
        else:
            why = tuple(piece for each in told for piece in each.why)
            answer = Answer(UNABLE, superior.name, (superior.name,), why=why)
        return replace(answer, below=_quiet(told), calls=sum(each.calls for each in told))

    def _cover(self, partial: Sequence[Answer]) -> bool:
        partial = [each for each in partial if each.says or each.parts]
        names = {each.agent for each in partial}
        # Of one alone it is known that it has not done all that it can.
        return (
            len(partial) > 1
            and bool(self.case.needs)
            and all(names & able for able in self.case.needs.values())
        )


def named(case: Case, superior: Post, asking: Asking, place: int) -> str:
    """Return whom a request names: who has one subordinate means it, unless others fit below."""
    if asking.whom[place] or len(superior.below) != 1:
        return asking.whom[place]
    [only] = superior.below
    fits = case.fits[place]
    others = only.below and any(fits.get(way[-1].name) for way in _ways_down(superior))
    return "" if others else only.name


def ways(
    case: Case, superior: Post, asking: Asking, place: int, at_work: Collection[str] = ()
) -> list[list[Post]]:
    """Return the ways down to all who may be asked, the best first, and of equals who is idle."""
    if name := named(case, superior, asking, place):
        return [[each] for each in superior.below if each.name == name]
    fits = case.fits[place]
    found = [way for way in _ways_down(superior) if fits.get(way[-1].name)]

    def rank(way: list[Post]) -> tuple[int, bool, list[str]]:
        score = way[-1].sure * fits[way[-1].name] - DEPTH_COST * len(way)
        return -score, way[-1].name in at_work, [each.name for each in way]

    return sorted(found, key=rank)


def _ways_down(post: Post) -> Iterator[list[Post]]:
    for each in post.below:
        yield [each]
        yield from ([each, *way] for way in _ways_down(each))


def _by_preference(answers: Sequence[Answer]) -> list[Answer]:
    return sorted(
        answers,
        key=lambda each: (PATH_COST * len(each.path) - (each.sure or 0), each.path, each.agent),
    )


def _best(answers: Sequence[Answer]) -> Answer:
    return _by_preference(answers)[0]


def _together(
    superior: Post, status: str, parts: Sequence[Answer], sure: Sequence[Answer]
) -> Answer:
    ordered = _by_preference(parts)
    says = tuple(piece for each in ordered for piece in each.says)
    partial = tuple(each.says for each in ordered if each.status == PARTIAL)
    least = min(each.sure or 0 for each in sure)
    return Answer(status, superior.name, _best(sure).path, says, sure=least, parts=partial)


def _question(superior: Post, partial: Sequence[Answer], asking: Sequence[Answer]) -> Answer:
    questions = [piece for each in asking for piece in each.says]
    missing = [piece for each in partial for piece in each.why]
    parts = tuple(each.says for each in partial)
    why = (*questions, *missing)
    done = tuple(piece for part in parts for piece in part)
    says = done if len(partial) == 1 and not asking else (*why, *done)
    return Answer(ASKS, superior.name, (), says, why, sure=None, parts=parts)


def _side_by_side(superior: Post, answers: Sequence[Answer]) -> Answer:
    statuses = {each.status for each in answers}
    if len(statuses) == 1:
        [status] = statuses
    else:
        status = ASKS if ASKS in statuses else PARTIAL
    unfinished = [each for each in answers if each.status != FULFILLED]
    done = [each.sure for each in answers if each.status in (FULFILLED, PARTIAL)]
    return Answer(
        status,
        superior.name,
        (superior.name,),
        says=tuple(
            piece
            for each in answers
            for piece in (*(each.why if each in unfinished else ()), *each.says)
        ),
        why=tuple(piece for each in unfinished for piece in each.why),
        sure=min((each or 0 for each in done), default=0),
        parts=tuple(each.says for each in answers if each.status == PARTIAL),
    )


def _quiet(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return answers as they are kept above: without what they say."""
    return tuple(replace(each, says=()) for each in answers)
