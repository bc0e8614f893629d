"""Requests through middleware: verified, rejected with reasons, tried again, up to the human."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from echelons import Agent, DelegationRequest, DelegationResponse, Permissions, Session
from echelons.errors import InvalidSetting
from echelons.middleware import (
    DelegationMiddleware,
    PlanMiddleware,
    ScoringMiddleware,
    VerificationMiddleware,
)
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def team(middleware: Any, answers: Any, mids: Any = None) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose second agent has middleware around its requests."""
    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "go"), "end"]),
            "mid": follow(mids or [delegate("leaf", "add 2 and 2"), "done"]),
            "leaf": follow(answers),
        }
    )
    mid = Agent("mid", middleware=middleware, subordinates=[Agent("leaf")])
    return Agent("head", model=model, subordinates=[mid]), model


def shown(model: ScriptedModel, agent: str) -> list[list[str]]:
    return [
        [without_marks(each.text) for each in call.messages if each.type != "system"]
        for call in model.calls
        if call.agent == agent
    ]


def is_four(request: DelegationRequest, response: DelegationResponse) -> str:
    return "" if "4" in response.result else f"{response.result} is wrong"


def test_a_wrong_result_is_rejected_twice_and_then_accepted(world: World) -> None:
    checked: list[str] = []

    def verify(request: DelegationRequest, response: DelegationResponse) -> str:
        checked.append(response.result)
        return is_four(request, response)

    agent, model = team([VerificationMiddleware(verify)], ["it is 3", "it is 5", "it is 4"])
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")
    assert result.text == "end"
    assert checked == ["it is 3", "it is 5", "it is 4"]
    again = "Your answer was rejected: {} is wrong\nDo the task again: add 2 and 2"
    # On one thread, with the reasons.
    assert shown(model, "leaf")[-1] == [
        "add 2 and 2",
        "it is 3",
        again.format("it is 3"),
        "it is 5",
        again.format("it is 5"),
    ]
    assert shown(model, "mid")[-1][-1] == "it is 4"
    # Every attempt is in the usage.
    assert result.usage.model_calls == len(model.calls)


@pytest.mark.parametrize(
    ("answer", "told"),
    [("accept", "it is 5"), ("reject", "rejected: it is 5 is wrong")],
)
def test_at_the_limit_the_human_is_asked(world: World, answer: str, told: str) -> None:
    verified: list[str] = []

    def verify(request: DelegationRequest, response: DelegationResponse) -> str:
        verified.append(response.result)
        return is_four(request, response)

    agent, model = team([VerificationMiddleware(verify, max_attempts=2)], ["it is 3", "it is 5"])
    with Session(agent, ":memory:") as session:
        asked = world.send(session, "go")
        [question] = asked.questions
        assert question.value["rejected"] == "it is 5 is wrong"
        assert world.answer(session, {question.id: answer}).text == "end"
    assert told in shown(model, "mid")[-1][-1]
    assert len(shown(model, "leaf")) == 2
    # Nothing was verified again when the answer came.
    assert verified == ["it is 3", "it is 5"]


def test_a_model_verifies_once_for_each_answer(world: World) -> None:
    checker = ScriptedModel(follow(["It is not four.", "OK."]))
    agent, model = team([VerificationMiddleware(checker)], ["it is 3", "it is 4"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert len(checker.calls) == 2
    assert '"answer": "it is 3"' in str(checker.calls[0].messages[-1].text)
    assert shown(model, "leaf")[-1][-1].startswith("Your answer was rejected: It is not four.")
    assert shown(model, "mid")[-1][-1] == "it is 4"


def test_an_agent_writes_its_plan_before_it_proceeds(world: World) -> None:
    steps = ["1. ask leaf", delegate("leaf", "go"), "done"]
    agent, model = team([PlanMiddleware()], ["four"], steps)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    calls = [each for each in model.calls if each.agent == "mid"]
    assert "write your plan" in str(calls[0].messages[0].text)
    assert calls[0].tools == ()
    assert shown(model, "mid")[1] == ["go", "1. ask leaf", "Proceed with your plan."]
    assert "call_subordinate" in calls[1].tools


def test_a_plan_is_rejected_with_reasons_and_then_accepted(world: World) -> None:
    steps = ["1. do it", "1. ask leaf", delegate("leaf", "go"), "done"]
    agent, model = team([PlanMiddleware(approve="user")], ["four"], steps)
    with Session(agent, ":memory:") as session:
        [first] = world.send(session, "go").questions
        assert first.value["plan"] == "1. do it"
        [second] = world.answer(session, {first.id: "leaf can do it."}).questions
        assert second.value["plan"] == "1. ask leaf"
        assert world.answer(session, {second.id: "accept"}).text == "end"
    assert "Your plan is rejected: leaf can do it. Write another." in shown(model, "mid")[1]


def test_a_superior_rejects_a_plan_and_then_accepts_another(world: World) -> None:
    answers = iter(["leaf can do it.", "Accept."])

    def lead(messages: Any) -> Any:
        asked = re.search(r'answers="(\w+)"', str(messages[-1].text))
        if asked:
            return Call("call_subordinate", {"message": next(answers), "answers": asked[1]})
        return delegate("mid", "go") if len(messages) < 3 else "end"

    mids = ["1. do it", "1. ask leaf", delegate("leaf", "go"), "done"]
    model = ScriptedModel(
        {
            "head": lead,
            "mid": follow(mids),
            "leaf": ["four"],
        }
    )
    plan = PlanMiddleware(approve="superior")
    mid = Agent("mid", middleware=[plan], subordinates=[Agent("leaf")])
    with Session(Agent("head", model=model, subordinates=[mid]), ":memory:") as session:
        result = world.send(session, "go")
    assert result.text == "end"
    calls = [each for each in model.calls if each.agent == "mid"]
    # Where a conversation has calls, some providers want a tool declared.
    assert [each.tools for each in calls][:2] == [(), ("past_tool",)]
    assert all("call_subordinate" in each.tools for each in calls[2:])
    asked = [each for each in shown(model, "head")[-1] if "May I proceed" in each]
    assert [re.findall(r"1\. [a-z ]+", each) for each in asked] == [["1. do it"], ["1. ask leaf"]]


def test_the_superior_of_a_root_is_the_user(world: World) -> None:
    model = ScriptedModel({"head": follow(["1. do it", "1. ask Ann", "done"])})
    agent = Agent("head", model=model, middleware=[PlanMiddleware(approve="superior")])
    with Session(agent, ":memory:") as session:
        [first] = world.send(session, "go").questions
        [second] = world.answer(session, {first.id: "Ann can do it."}).questions
        assert "1. ask Ann" in str(second.value)
        assert world.answer(session, {second.id: "accept"}).text == "done"


@pytest.mark.parametrize(("threshold", "delegates"), [(1, True), (9, False)])
def test_points_decide_whether_a_task_is_delegated(
    world: World, threshold: int, delegates: bool
) -> None:
    agent, model = team([ScoringMiddleware(threshold)], ["four"], ["done"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    [call] = [each for each in model.calls if each.agent == "mid"]
    assert ("call_subordinate" in call.tools) is delegates
    assert ("give it to your subordinates" in str(call.messages[0].text)) is delegates
    assert "report" in call.tools


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlanMiddleware(approve=1),  # type: ignore[arg-type]
        lambda: ScoringMiddleware(0),
        lambda: ScoringMiddleware(True),
        lambda: ScoringMiddleware(score=3),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_of_plans_and_points_are_refused(make: Any) -> None:
    with pytest.raises(InvalidSetting):
        make()


class Wrapping(DelegationMiddleware):
    """Wraps requests with a function that is the same in both forms."""

    def __init__(self, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        self._before, self._after = before, after

    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        return self._after(handler(self._before(request)))  # type: ignore[no-any-return]

    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        return self._after(await handler(self._before(request)))  # type: ignore[no-any-return]


def test_a_request_goes_down_and_its_response_up_through_all_wraps(world: World) -> None:
    def mark(text: str) -> Wrapping:
        wrap = type(text, (Wrapping,), {})
        return wrap(  # type: ignore[no-any-return]
            lambda asked: asked.model_copy(update={"task": f"{asked.task} {text}"}),
            lambda said: said.model_copy(update={"result": f"{said.result} {text}"}),
        )

    agent, model = team([mark("outer"), mark("inner")], ["four"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert shown(model, "leaf")[-1] == ["add 2 and 2 outer inner"]
    assert shown(model, "mid")[-1][-1] == "four inner outer"


def test_a_question_in_a_second_attempt_repeats_nothing_of_the_first(world: World) -> None:
    agent, model = team(
        [VerificationMiddleware(is_four)], ["it is 3", Call("ask_superior", {"question": "sure?"})]
    )
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert len(shown(model, "leaf")) == 2


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (lambda asked: 1 // 0, lambda said: said, "ZeroDivisionError"),
        (lambda asked: asked, lambda said: "text", "which is no response"),
        (lambda asked: "text", lambda said: said, "'text', which is no request"),
        (
            lambda asked: asked.model_copy(update={"task": 7}),
            lambda said: said,
            "which is no request",
        ),
        (
            lambda asked: asked,
            lambda said: said.model_copy(update={"status": "perhaps"}),
            "which is no response",
        ),
    ],
)
def test_a_wrap_that_fails_is_named(world: World, before: Any, after: Any, why: str) -> None:
    model = ScriptedModel({"head": [delegate("leaf", "go"), "end"], "leaf": ["done"]})
    agent = Agent(
        "head", model=model, middleware=[Wrapping(before, after)], subordinates=[Agent("leaf")]
    )
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match=why) as caught:
            world.send(session, "go")
    assert (caught.value.agent, caught.value.hook) == ("head", "wrap_delegation")


@pytest.mark.parametrize("values", [{"verify": 1}, {"max_attempts": 0}, {"max_attempts": True}])
def test_bad_settings_of_a_verification_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        VerificationMiddleware(**{"verify": is_four, **values})


def test_each_part_of_a_fan_out_is_verified_by_itself(world: World) -> None:
    requests = [{"subordinate": name, "message": f"ask {name}"} for name in ("one", "two")]
    model = ScriptedModel(
        {
            "head": follow([Call("delegate_many", {"requests": requests}), "end"]),
            "one": follow(["it is 3", "it is 4 of one"]),
            "two": follow(["it is 4 of two"]),
        }
    )
    agent = Agent(
        "head",
        model=model,
        middleware=[VerificationMiddleware(is_four)],
        subordinates=[Agent("one"), Agent("two")],
    )
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    told = shown(model, "head")[-1][-1]
    assert "it is 4 of one" in told
    assert "it is 4 of two" in told
    assert [len(shown(model, name)) for name in ("one", "two")] == [2, 1]


def test_a_candidate_that_is_rejected_to_the_end_leaves_the_task_to_the_next(
    world: World,
) -> None:
    class Strict(DelegationMiddleware):
        def judge(self, said: DelegationResponse) -> DelegationResponse:
            if "4" in said.result:
                return said
            return said.model_copy(update={"status": "unable", "reason": "it is wrong"})

        def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
            handler(request)
            return self.judge(handler(request))

        async def awrap_delegation(
            self, request: DelegationRequest, handler: Any
        ) -> DelegationResponse:
            await handler(request)
            return self.judge(await handler(request))

    model = ScriptedModel(
        {
            "head": follow([Call("call_subordinate", {"message": "add two numbers"}), "end"]),
            "one": follow(["3", "3"]),
            "two": follow(["3", "4"]),
        }
    )
    agent = Agent(
        "head",
        model=model,
        middleware=[Strict()],
        subordinates=[
            Agent("one", "Adds numbers", capabilities={"adding": 0.9}),
            Agent("two", "Adds numbers", capabilities={"adding": 0.8}),
        ],
    )
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert [len(shown(model, name)) for name in ("one", "two")] == [2, 2]
    assert "4" in shown(model, "head")[-1][-1]


def test_a_request_that_is_held_is_approved_once_for_all_attempts(world: World) -> None:
    rules = Permissions(approvals={"leaf": "ask"})
    model = ScriptedModel(
        {
            "head": follow([delegate("leaf", "add 2 and 2"), "end"]),
            "leaf": follow(["it is 3", "it is 4"]),
        }
    )
    agent = Agent(
        "head",
        model=model,
        middleware=[VerificationMiddleware(is_four)],
        permissions=rules,
        subordinates=[Agent("leaf")],
    )
    with Session(agent, ":memory:") as session:
        [question] = world.send(session, "go").questions
        done = world.answer(session, {question.id: "approve"})
    assert (done.questions, done.text) == ((), "end")
    assert len(shown(model, "leaf")) == 2


def reviewed_team(
    reviews: Any, answers: Any, *, may_ask: bool = False
) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels in which one subordinate verifies what another answers."""
    rules = Permissions(contact_user=may_ask)
    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "go"), "end"]),
            "mid": follow([delegate("leaf", "add 2 and 2"), "done"]),
            "leaf": follow(answers),
            "reviewer": follow(reviews),
        }
    )
    mid = Agent(
        "mid",
        middleware=[VerificationMiddleware("reviewer")],
        subordinates=[Agent("leaf"), Agent("reviewer", permissions=rules)],
        permissions=rules,
    )
    return Agent("head", model=model, subordinates=[mid], permissions=rules), model


def test_another_subordinate_verifies_on_a_thread_of_its_own(world: World) -> None:
    agent, model = reviewed_team(["It is not four.", "OK."], ["it is 3", "it is 4"])
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")
        threads = [each for each in session.trace().walk() if each.agent == "reviewer"]
    assert shown(model, "mid")[-1][-1] == "it is 4"
    assert shown(model, "leaf")[-1][-1].startswith("Your answer was rejected: It is not four.")
    # It reads its own conversation, and nothing else.
    first, verdict, second = shown(model, "reviewer")[-1]
    assert '{"task": "add 2 and 2", "answer": "it is 3"}' in first
    assert verdict == "It is not four."
    assert '"answer": "it is 4"' in second
    [thread] = threads
    assert [each.task for each in thread.requests] == [first, second]
    assert result.usage.model_calls == len(model.calls) == 8


@pytest.mark.parametrize(("answer", "told"), [("accept", "it is 3"), ("reject", "cannot tell")])
def test_what_the_reviewer_cannot_tell_the_human_decides(
    world: World, answer: str, told: str
) -> None:
    unable = Call("report", {"status": "unable", "reason": "no calculator"})
    agent, model = reviewed_team([unable], ["it is 3"])
    with Session(agent, ":memory:") as session:
        [question] = world.send(session, "go").questions
        assert question.value["rejected"] == "reviewer cannot tell: no calculator"
        world.answer(session, {question.id: answer})
    assert told in shown(model, "mid")[-1][-1]
    assert [len(shown(model, each)) for each in ("leaf", "reviewer")] == [1, 1]


def test_a_reviewer_asks_the_user_and_repeats_nothing(world: World) -> None:
    asked = Call("ask_user", {"question": "Is it four?"})
    agent, model = reviewed_team([asked, "No.", "OK"], ["it is 3", "it is 4"], may_ask=True)
    with Session(agent, ":memory:") as session:
        [question] = world.send(session, "go").questions
        assert world.answer(session, {question.id: "no"}).text == "end"
    assert len(shown(model, "leaf")) == 2
    assert shown(model, "mid")[-1][-1].startswith("it is 4")


def test_parts_of_a_fan_out_have_reviews_of_their_own(world: World) -> None:
    requests = [{"subordinate": name, "message": f"ask {name}"} for name in ("one", "two")]
    model = ScriptedModel(
        {
            "head": follow([Call("delegate_many", {"requests": requests}), "end"]),
            "one": ["first"],
            "two": ["second"],
            "reviewer": follow(["OK", "OK"]),
        }
    )
    members = [Agent("one"), Agent("two"), Agent("reviewer")]
    checks = [VerificationMiddleware("reviewer")]
    agent = Agent("head", model=model, middleware=checks, subordinates=members)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
        threads = [each.agent for each in session.trace().walk()]
    assert threads.count("reviewer") == 2
    assert all(len(messages) == 1 for messages in shown(model, "reviewer"))


def test_wrap_that_asks_missing_agent_reads_so(world: World) -> None:
    class Asking(DelegationMiddleware):
        def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
            return handler.ask("ghost", "Boo?")  # type: ignore[no-any-return]

        async def awrap_delegation(
            self, request: DelegationRequest, handler: Any
        ) -> DelegationResponse:
            return await handler.ask("ghost", "Boo?")  # type: ignore[no-any-return]

    agent, model = team([Asking()], [])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert "no subordinate is called 'ghost'" in shown(model, "mid")[-1][-1]


@pytest.mark.parametrize("given", [("leaf", 7), (None, "task")])
def test_a_wrap_that_asks_with_no_text_is_named(world: World, given: Any) -> None:
    class Asking(DelegationMiddleware):
        def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
            return handler.ask(*given)  # type: ignore[no-any-return]

        async def awrap_delegation(
            self, request: DelegationRequest, handler: Any
        ) -> DelegationResponse:
            return await handler.ask(*given)  # type: ignore[no-any-return]

    model = ScriptedModel({"head": [delegate("leaf", "go"), "end"]})
    agent = Agent("head", model=model, middleware=[Asking()], subordinates=[Agent("leaf")])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="takes a subordinate's name and a task"):
            world.send(session, "go")


def test_a_verifier_that_is_no_subordinate_is_refused_when_the_agent_is_made() -> None:
    with raises_code("invalid_field", match="that asks one of leaf"):
        Agent("mid", middleware=[VerificationMiddleware("revuer")], subordinates=[Agent("leaf")])
    with raises_code("invalid_name"):
        VerificationMiddleware("no name")
