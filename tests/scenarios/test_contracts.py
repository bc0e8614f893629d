"""Subordinates with typed inputs and outputs: as tools of their superiors, enforced, stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, Field, create_model

from echelons import Agent, Contract, Session, SqliteCheckpointer, get_request, subordinate
from echelons.errors import InvalidInput
from echelons.middleware import DelegationMiddleware
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


class Query(BaseModel):
    city: str = Field(min_length=1)
    nights: int = 1


class Hotel(BaseModel):
    name: str
    price: float


TYPED = Contract(input=Query, output=Hotel)
IBIS: dict[str, Any] = {"name": "Ibis", "price": 80.0}


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def shown(model: ScriptedModel, agent: str) -> list[list[str]]:
    return [
        [without_marks(each.text) for each in call.messages if each.type != "system"]
        for call in model.calls
        if call.agent == agent
    ]


def team(mids: Any, answers: Any, contract: Contract = TYPED, **more: Any) -> Any:
    """Return a tree of three levels whose leaf has a contract, and its model."""
    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "go"), "end"]),
            "mid": follow(mids),
            "hotels": follow(answers),
        }
    )
    leaf = Agent("hotels", "Finds hotels", contract=contract, **more)
    mid = Agent("mid", subordinates=[leaf])
    return Agent("head", model=model, subordinates=[mid]), model


def test_a_subordinate_is_a_tool_with_the_fields_of_its_input(world: World) -> None:
    agent, model = team(
        [Call("hotels", {"city": "Rome"}), "done"],
        [json.dumps(IBIS)],
    )
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
        trace = session.trace()
    [first, _] = [each for each in model.calls if each.agent == "mid"]
    assert "hotels" in first.tools
    assert shown(model, "hotels") == [["Rome"]]
    assert json.loads(shown(model, "mid")[-1][-1]) == IBIS
    leaf = next(each for each in trace.walk() if each.agent == "hotels")
    [request] = leaf.requests
    assert request.sent.input == {"city": "Rome"}
    assert request.response is not None
    assert request.response.output == {"model": "Hotel", "value": IBIS}


def test_an_invalid_input_goes_back_in_words_and_nothing_runs(world: World) -> None:
    agent, model = team(
        [
            Call("hotels", {"town": "Rome"}),
            Call("hotels", {"city": "Rome", "nights": "two"}),
            Call("hotels", {"city": "Rome", "nights": 2}),
            "done",
        ],
        [json.dumps(IBIS)],
    )
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    told = shown(model, "mid")
    assert told[1][-1] == "Error: city: Field required"
    assert told[2][-1].startswith("Error: nights: Input should be a valid integer")
    assert shown(model, "hotels") == [["city: Rome\nnights: 2"]]


def test_prompt_tool_and_middleware_read_the_input_as_an_instance(world: World) -> None:
    from langchain.agents.middleware import AgentMiddleware

    seen: list[Any] = []

    class Reader(AgentMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            seen.append(state["payload"])

    def prompt(state: Any) -> str:
        seen.append(state["payload"])
        return "Find."

    def look() -> str:
        """Look it up."""
        seen.append(get_request().payload)
        return "found"

    agent, _ = team(
        [Call("hotels", {"city": "Rome"}), "done"],
        [Call("look"), json.dumps(IBIS)],
        prompt=prompt,
        tools=[look],
        middleware=[Reader()],
    )
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert seen == [Query(city="Rome")] * 5


def test_an_answer_that_is_no_output_is_asked_for_again(world: World) -> None:
    agent, model = team(
        [Call("hotels", {"city": "Rome"}), "done"],
        ["The Ibis is nice.", '{"name": "Ibis"}', f"```json\n{json.dumps(IBIS)}\n```"],
    )
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    last = shown(model, "hotels")[-1]
    assert "it is no JSON" in last[2]
    assert "price: Field required" in last[4]
    assert json.loads(shown(model, "mid")[-1][-1]) == IBIS


def test_a_report_whose_result_is_no_output_is_refused_until_it_is(world: World) -> None:
    wrong = Call("report", {"status": "fulfilled", "result": {"name": "Ibis"}})
    right = Call("report", {"status": "fulfilled", "result": IBIS})
    agent, model = team([Call("hotels", {"city": "Rome"}), "done"], [wrong, right])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert shown(model, "hotels")[-1][-1] == "Error: result: price: Field required"
    assert json.loads(shown(model, "mid")[-1][-1]) == IBIS


@pytest.mark.parametrize(
    "answers",
    [
        ["no", "never", "not at all"],
        ["no", Call("report", {"status": "fulfilled", "result": "no"}), "never"],
    ],
)
def test_an_output_that_never_validates_ends_at_the_limit(world: World, answers: Any) -> None:
    agent, model = team([Call("hotels", {"city": "Rome"}), "done"], answers)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert len(shown(model, "hotels")) == 3
    told = shown(model, "mid")[-1][-1]
    assert "its answer was not of the type Hotel 3 times" in told


def test_a_report_that_it_cannot_needs_no_output(world: World) -> None:
    unable = Call("report", {"status": "unable", "reason": "all are full"})
    agent, model = team([Call("hotels", {"city": "Rome"}), "done"], [unable])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert shown(model, "mid")[-1][-1] == "[unable] all are full"


def test_each_call_of_the_tool_begins_a_conversation_of_its_own(world: World) -> None:
    both = [Call("hotels", {"city": "Rome"}), Call("hotels", {"city": "Bari"})]
    agent, model = team([both, "done"], [json.dumps(IBIS)] * 2)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert sorted(shown(model, "hotels")) == [["Bari"], ["Rome"]]


def test_a_question_is_answered_on_the_thread_and_keeps_the_input(world: World) -> None:
    seen: list[Any] = []

    def prompt(state: Any) -> str:
        seen.append(state["payload"])
        return ""

    def answer(messages: Any) -> Any:
        question = str(messages[-1].text).split('answers="')[1][:8]
        return Call("call_subordinate", {"message": "by train", "answers": question})

    steps = iter([Call("hotels", {"city": "Rome"}), answer, "done"])

    def mid(messages: Any) -> Any:
        step = next(steps)
        return step(messages) if callable(step) else step

    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "go"), "end"]),
            "mid": mid,
            "hotels": follow([Call("ask_superior", {"question": "How?"}), json.dumps(IBIS)]),
        }
    )
    leaf = Agent("hotels", contract=TYPED, prompt=prompt)
    tree = Agent("head", model=model, subordinates=[Agent("mid", subordinates=[leaf])])
    with Session(tree, ":memory:") as session:
        world.send(session, "go")
    assert seen == [Query(city="Rome")] * 2
    assert json.loads(shown(model, "mid")[-1][-1]) == IBIS


def test_several_typed_requests_are_made_with_their_inputs(world: World) -> None:
    requests = [
        {"subordinate": "hotels", "input": {"city": "Rome"}},
        {"subordinate": "trains", "message": "to Rome"},
    ]
    model = ScriptedModel(
        {
            "head": follow([Call("delegate_many", {"requests": requests}), "end"]),
            "hotels": [json.dumps(IBIS)],
            "trains": ["At nine."],
        }
    )
    members = [Agent("hotels", contract=TYPED), Agent("trains")]
    with Session(Agent("head", model=model, subordinates=members), ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert shown(model, "hotels") == [["Rome"]]
    assert "Ibis" in shown(model, "head")[-1][-1]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"subordinate": "hotels", "message": "Rome, two nights"}, None),
        ({"subordinate": "hotels", "message": '{"city": "Rome"}'}, None),
        ({"subordinate": "hotels", "input": {"city": ""}}, "city: String should have at least 1"),
        ({"subordinate": "trains", "input": {"city": "Rome"}}, "'trains' takes no input"),
        ({"input": {"city": "Rome"}}, "names no subordinate has no input"),
    ],
)
def test_what_call_subordinate_may_give_one_with_an_input(
    world: World, args: Any, why: str | None
) -> None:
    model = ScriptedModel(
        {
            "head": follow([Call("call_subordinate", args), "end"]),
            "hotels": [json.dumps(IBIS)],
            "trains": ["At nine."],
        }
    )
    members = [Agent("hotels", contract=TYPED), Agent("trains")]
    with Session(Agent("head", model=model, subordinates=members), ":memory:") as session:
        world.send(session, "go")
    told = shown(model, "head")[-1][-1]
    assert (why in told) if why else (json.loads(told) == IBIS)


def test_a_message_that_is_no_input_is_refused_with_the_tool_to_call(world: World) -> None:
    class Range(BaseModel):
        first: int
        last: int

    agent, model = team(
        [delegate("hotels", "from 1 to 3"), Call("hotels", {"first": 1, "last": 3}), "done"],
        ["3"],
        Contract(input=Range),
    )
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    told = shown(model, "mid")[1][-1]
    assert "it takes an object with first, last, and no plain message" in told
    assert "call its own tool 'hotels'" in told
    assert shown(model, "hotels") == [["first: 1\nlast: 3"]]


def test_a_routed_task_goes_on_to_a_candidate_that_takes_it(world: World) -> None:
    class Range(BaseModel):
        first: int

    model = ScriptedModel(
        {
            "head": follow([Call("call_subordinate", {"message": "count hotels"}), "end"]),
            "exact": ["1"],
            "rough": ["some"],
        }
    )
    exact = Agent("exact", capabilities={"count hotels": 0.9}, contract=Contract(input=Range))
    rough = Agent("rough", capabilities={"count hotels": 0.8})
    with Session(Agent("head", model=model, subordinates=[exact, rough]), ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert (shown(model, "exact"), len(shown(model, "rough"))) == ([], 1)


def test_a_wrap_reads_input_and_output_as_instances(world: World) -> None:
    seen: list[Any] = []

    class Reader(DelegationMiddleware):
        def wrap_delegation(self, request: Any, handler: Any) -> Any:
            response = handler(request)
            seen.extend([request.payload, response.value])
            return response

        async def awrap_delegation(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            seen.extend([request.payload, response.value])
            return response

    model = ScriptedModel(
        {"head": follow([Call("hotels", {"city": "Rome"}), "end"]), "hotels": [json.dumps(IBIS)]}
    )
    members = [Agent("hotels", contract=TYPED)]
    agent = Agent("head", model=model, subordinates=members, middleware=[Reader()])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert seen == [Query(city="Rome"), Hotel(**IBIS)]


@pytest.mark.parametrize(
    "task", [Query(city="Rome"), {"city": "Rome"}, "Rome", '{"city": "Rome", "nights": 1}']
)
def test_a_root_takes_its_input_and_returns_its_output(world: World, task: Any) -> None:
    seen: list[Any] = []

    def prompt(state: Any) -> str:
        seen.append(state["payload"])
        return ""

    def look() -> str:
        """Look it up."""
        seen.append(get_request().payload)
        return "found"

    model = ScriptedModel(follow([Call("look"), "So so.", json.dumps(IBIS)]))
    agent = Agent("hotels", model=model, contract=TYPED, prompt=prompt, tools=[look])
    with Session(agent, ":memory:") as session:
        result = world.send(session, task)
    assert result.value == Hotel(**IBIS)
    assert seen == [Query(city="Rome")] * 4


def test_a_root_whose_answers_are_no_output_ends_limited(world: World) -> None:
    agent = Agent("hotels", model=ScriptedModel(["a", "b", "c"]), response_format=Hotel)
    with Session(agent, ":memory:") as session:
        result = world.send(session, "Rome")
    assert (result.status, result.value) == ("limited", None)
    assert "not of the type Hotel 3 times" in result.reason


@pytest.mark.parametrize("task", [{"town": "Rome"}, Hotel(**IBIS), "", [{"type": "text"}]])
def test_a_root_refuses_what_is_no_input(world: World, task: Any) -> None:
    agent = Agent("hotels", model=ScriptedModel(["a"]), contract=TYPED)
    with Session(agent, ":memory:") as session:
        with pytest.raises(InvalidInput) as caught:
            world.send(session, task)
    assert caught.value.code in ("contract_broken", "invalid_task")


def return_instance(query: Query) -> Hotel:
    """Find a hotel."""
    assert isinstance(query, Query)
    return Hotel(**IBIS)


def return_fields(query: Query) -> dict[str, Any]:
    """Find a hotel."""
    return dict(IBIS)


def return_text(query: Query) -> str:
    """Find a hotel."""
    return json.dumps(IBIS)


def return_nonsense(query: Query) -> str:
    """Find a hotel."""
    return "Ibis"


def return_other(query: Query) -> Query:
    """Find a hotel."""
    return query


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (return_instance, ""),
        (return_fields, ""),
        (return_text, ""),
        (return_nonsense, "invalid_output: it is no JSON"),
        (return_other, "invalid_output: name: Field required; price: Field required"),
    ],
)
def test_a_function_with_a_contract_takes_and_returns_instances(
    world: World, function: Any, why: str
) -> None:
    model = ScriptedModel(follow([Call("hotels", {"city": "Rome"}), "end"]))
    members = [subordinate(function, name="hotels", contract=TYPED)]
    with Session(Agent("head", model=model, subordinates=members), ":memory:") as session:
        world.send(session, "go")
    told = shown(model, "")[-1][-1] if shown(model, "") else str(model.calls[-1].messages[-1].text)
    assert (why in told) if why else (json.loads(told) == IBIS)


def test_a_graph_with_a_contract_has_the_fields_in_its_state(world: World) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    class State(MessagesState):
        city: str
        nights: int
        name: str
        price: float

    def find(state: Any) -> dict[str, Any]:
        return {"name": f"Ibis {state['city']}", "price": 40.0 * state["nights"]}

    builder = StateGraph(State)
    builder.add_node("find", find)
    builder.add_edge(START, "find")
    graph = subordinate(builder.compile(), name="hotels", contract=TYPED)
    model = ScriptedModel(follow([Call("hotels", {"city": "Rome", "nights": 2}), "end"]))
    with Session(Agent("head", model=model, subordinates=[graph]), ":memory:") as session:
        world.send(session, "go")
    told = str(model.calls[-1].messages[-1].text)
    assert json.loads(told) == {"name": "Ibis Rome", "price": 80.0}


def test_a_create_agent_with_a_response_format_gives_the_output(world: World) -> None:
    from langchain.agents import create_agent

    theirs = ScriptedModel(follow([Call("Hotel", IBIS)]))
    inner = create_agent(theirs, response_format=Hotel, name="hotels")
    model = ScriptedModel(follow([Call("hotels", {"city": "Rome"}), "end"]))
    member = subordinate(inner, contract=TYPED)
    # It keeps the instance in its state.
    with SqliteCheckpointer(":memory:", allowed_types=[Hotel]) as saver:
        with Session(Agent("head", model=model, subordinates=[member]), saver) as session:
            world.send(session, "go")
    assert json.loads(str(model.calls[-1].messages[-1].text)) == IBIS


class Recursive(BaseModel):
    below: list[Recursive] = []


FIELDS: Any = {f"field_{place}": (str, ...) for place in range(3000)}
Many = create_model("Many", **FIELDS)


class Never(BaseModel):
    name: str

    def model_post_init(self, context: Any) -> None:
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (int, "has to be a class of pydantic models"),
        (Query(city="Rome"), "has to be a class of pydantic models"),
        (Recursive, "Recursive contains itself"),
        (Many, "its schema has"),
        (Never, "an example of it is refused (RuntimeError: never)"),
        (BaseModel, "it has no JSON Schema"),
    ],
)
def test_a_type_that_cannot_be_used_is_refused_when_the_contract_is_made(
    model: Any, why: str
) -> None:
    with raises_code("invalid_contract") as caught:
        Contract(input=model)
    assert why in str(caught.value)


def test_required_fields_are_no_error_and_an_example_helps_where_none_can_be_made() -> None:
    class Coded(BaseModel):
        code: str = Field(pattern="^[A-Z]{3}$")

    with raises_code("invalid_contract", match=r"give Contract\(example="):
        Contract(input=Coded)
    assert Contract(input=Coded, example={"code": "ROM"}).input is Coded
    assert Contract(input=Query).input is Query


def test_names_and_formats_that_do_not_fit_are_refused_when_the_agent_is_made() -> None:
    def hotels(city: str) -> str:
        """Find."""
        return city

    with raises_code("duplicate_name"):
        Agent("head", tools=[hotels], subordinates=[Agent("hotels", contract=TYPED)])
    with raises_code("invalid_field", match="response_format"):
        Agent("head", contract=TYPED, response_format=Query)
    with raises_code("invalid_field", match="contract"):
        Agent("head", contract=Query)  # type: ignore[arg-type]
    with raises_code("contract_broken"):
        TYPED.read_output("{}")


def test_a_tool_that_no_model_can_be_shown_is_an_error_when_the_tree_is_made() -> None:
    class Connection:
        """Nothing that JSON has."""

    def query(connection: Connection) -> str:
        """Ask a database."""
        return str(connection)

    leaf = Agent("leaf", tools=[query])
    head = Agent(
        "head", model=ScriptedModel(["end"]), subordinates=[Agent("mid", subordinates=[leaf])]
    )
    with raises_code("invalid_tool", match="'query' of head/mid/leaf"):
        Session(head, ":memory:")


@pytest.mark.parametrize("can_form", [True, False])
def test_a_provider_with_structured_output_is_asked_for_it(can_form: bool) -> None:
    from langchain_openai import ChatOpenAI

    from echelons.testing.openai_server import OpenAIServer

    answers = [json.dumps(IBIS)] if can_form else ["The Ibis.", json.dumps(IBIS)]
    with OpenAIServer(answers) as server:
        name = "gpt-5-mini" if can_form else "a-model-of-ours"
        model = ChatOpenAI(model=name, base_url=server.url, api_key="none")  # type: ignore[arg-type]
        agent = Agent("hotels", model=model, response_format=Hotel)
        with Session(agent, ":memory:") as session:
            result = session.send("Rome").result()
    assert result.value == Hotel(**IBIS)
    form = server.requests[0].body.get("response_format")
    assert (form is not None) is can_form
    if form:
        assert form["json_schema"]["schema"]["required"] == ["name", "price"]


class City(BaseModel):
    city: str


class Forecast(BaseModel):
    forecast: str


def test_the_offline_planner_fills_the_inputs_from_the_task(world: World) -> None:
    def find(query: Query) -> Hotel:
        """Find a hotel in a city."""
        return Hotel(name=f"Ibis {query.city}", price=40.0 * query.nights)

    def tell(query: City) -> Forecast:
        """Tell the weather of a city."""
        return Forecast(forecast=f"sun in {query.city}")

    members = [
        subordinate(find, name="hotels", contract=TYPED),
        subordinate(tell, name="weather", contract=Contract(input=City, output=Forecast)),
    ]
    task = "Find a hotel in Rome for 3 nights and tell me the weather in Rome"
    with Session(Agent("head", subordinates=members), ":memory:") as session:
        text = world.send(session, task).text
    assert '{"name": "Ibis Rome", "price": 120.0}' in text
    assert '{"forecast": "sun in Rome"}' in text


def test_a_graph_around_a_tree_may_give_it_a_text_that_is_no_input() -> None:
    class Range(BaseModel):
        first: int
        last: int

    seen: list[Any] = []

    def prompt(state: Any) -> str:
        seen.append(state["payload"])
        return ""

    model = ScriptedModel(["from 1 to 3"])
    agent = Agent("count", model=model, prompt=prompt, contract=Contract(input=Range))
    agent.compile().invoke({"messages": [("user", "from 1 to 3")]})
    assert seen == [None]
