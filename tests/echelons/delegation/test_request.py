"""Requests and responses are stored as JSON under their own name, and checked when read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from echelons import DelegationRequest, DelegationResponse, Status, Usage
from echelons.delegation.request import MAX_HOPS
from echelons.errors import UnreadableRecord
from echelons.tree.agent_path import AgentPath

texts = st.text(max_size=8)
paths = st.lists(texts, max_size=4).map(tuple)
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    model_calls=st.integers(0, 10**3),
    unknown_calls=st.integers(0, 10**3),
)
requests = st.builds(
    DelegationRequest,
    id=texts,
    origin=texts,
    current=texts,
    task=texts,
    context=st.dictionaries(texts, texts | st.integers(), max_size=2),
    path=paths,
    max_hops=st.integers(1, 99),
    attempts=st.integers(1, 9),
    budget=st.dictionaries(texts, st.floats(0, 1e6), max_size=2),
    deadline=st.none() | st.floats(0, 1e10),
    route=paths,
)
leaves = st.builds(
    DelegationResponse,
    request_id=texts,
    agent=texts,
    status=st.sampled_from(Status),
    result=texts,
    confidence=st.floats(0, 1),
    path=paths,
    usage=usages,
    reason=texts,
    partial_results=paths,
)
responses = st.builds(
    lambda response, below: response.model_copy(update={"subordinate_responses": tuple(below)}),
    leaves,
    st.lists(leaves, max_size=3),
)


@given(requests)
def test_a_request_reads_back_as_it_was_stored(request_: DelegationRequest) -> None:
    assert DelegationRequest.load(json.loads(json.dumps(request_.stored()))) == request_


@given(responses)
def test_a_response_reads_back_as_it_was_stored(response: DelegationResponse) -> None:
    assert DelegationResponse.load(json.loads(json.dumps(response.to_artifact()))) == response


def test_record_names_its_kind_and_omits_unset_fields() -> None:
    request = DelegationRequest(id="1", origin="head", current="eat", task="dinner")

    assert request.stored() == {
        "model": "DelegationRequest",
        "version": 1,
        "id": "1",
        "origin": "head",
        "current": "eat",
        "task": "dinner",
    }


@pytest.mark.parametrize(
    "stored",
    [
        None,
        5,
        "text",
        [],
        {},
        {"model": "DelegationRequest"},
        {"model": "DelegationResponse", "version": 1, "request_id": "1", "agent": "eat"},
        {"request_id": "1", "agent": "eat", "status": "fulfilled"},
    ],
)
def test_what_is_no_response_is_refused_by_name(stored: Any) -> None:
    with pytest.raises(UnreadableRecord) as refused:
        DelegationResponse.load(stored)

    assert refused.value.model == "DelegationResponse"
    assert refused.value.why in str(refused.value)
    for part in ("DelegationResponse", "cannot be read", "checkpoint before it"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", "done"), ("confidence", 1.5), ("confidence", -0.1), ("usage", 5)],
)
def test_a_damaged_field_is_named(field: str, value: Any) -> None:
    stored = DelegationResponse(request_id="1", agent="eat", status=Status.UNABLE).stored()

    with pytest.raises(UnreadableRecord) as refused:
        DelegationResponse.load({**stored, field: value})

    assert field in refused.value.why


def test_a_record_cannot_be_changed() -> None:
    response = DelegationResponse(request_id="1", agent="eat", status=Status.UNABLE)

    with pytest.raises(ValidationError):
        response.status = Status.FULFILLED
    assert response.status is Status.UNABLE


def test_fields_of_a_newer_version_are_passed_over() -> None:
    response = DelegationResponse(
        request_id="1",
        agent="eat",
        status=Status.UNABLE,
        subordinate_responses=(
            DelegationResponse(request_id="2", agent="cook", status=Status.FULFILLED),
        ),
    )
    stored = response.stored()
    [below] = stored["subordinate_responses"]

    newer = {**below, "newer": 1, "usage": {"newer": 1}}
    read = DelegationResponse.load({**stored, "newer": 1, "subordinate_responses": [newer]})

    assert read == response


@pytest.mark.parametrize("model", [DelegationRequest, DelegationResponse, Usage])
def test_a_field_that_does_not_exist_is_refused(model: Any) -> None:
    with pytest.raises(ValidationError, match="surprise"):
        model(surprise=1)


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one


def test_usage_adds_each_kind_for_itself() -> None:
    total = Usage(input_tokens=1, output_tokens=20, model_calls=300, unknown_calls=4000) + Usage(
        input_tokens=4, output_tokens=50, model_calls=600, unknown_calls=1000
    )

    assert total == Usage(input_tokens=5, output_tokens=70, model_calls=900, unknown_calls=5000)


def test_usage_is_stored_as_before_unless_a_call_is_unknown() -> None:
    known = {"input_tokens": 1, "output_tokens": 2, "model_calls": 3}

    assert Usage(**known).model_dump() == known
    whole = {**known, "unknown_calls": 1}
    assert Usage(**whole).model_dump() == whole
    assert Usage.model_validate(known).unknown_calls == 0


@pytest.mark.parametrize(("path", "hops"), [((), 0), (("head",), 0), (("a", "b", "c"), 2)])
def test_hops_are_the_steps_down_that_a_request_has_made(path: tuple[str, ...], hops: int) -> None:
    request = DelegationRequest(id="1", origin="a", current="c", task="x", path=AgentPath(path))

    assert request.hops == hops
    assert request.max_hops == MAX_HOPS == 10


def test_a_request_ends_in_one_of_four_ways() -> None:
    assert [str(status) for status in Status] == ["fulfilled", "partial", "unable", "needs_input"]
