"""What looks like a key or a password is removed from a text, and nothing else."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from echelons import redact_secrets
from echelons.text.error_lines import (
    FAILED_REDACTOR,
    LONGEST_TEXT,
    REDACTED,
    apply_redactor,
    remember_secrets,
)

BASE64 = (b64encode, urlsafe_b64encode)

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEhunter2\nhunter2==\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "DB_PASSWORD=hunter2",
        "passwd: hunter2",
        "password='a hunter2 b'",
        'password="hunter2\nhunter2"',
        "password='hunter2",
        "{'password': 'hunter2', 'user': 'me'}",
        '{"password":"a \'hunter2\' b"}',
        r"{\"client_secret\": \"hunter2\"}",
        "api_key: hunter2",
        "API key: hunter2",
        "Incorrect API key provided: hunter2",
        "x-api-key: hunter2",
        "(b'x-api-key', b'hunter2')",
        "apiKey => hunter2",
        "aws_secret_access_key = hunter2/+",
        "access_token=hunter2&x=1",
        "token=hunter2",
        "token = hunter2",
        "token: hunter2",
        "pass=hunter2",
        "pass: hunter2",
        "the password is 'hunter2'",
        '"token": "hunter2"',
        "mysql --password hunter2 -h db",
        "['mysql', '--password', 'hunter2']",
        "Authorization: Bearer hunter2",
        "authorization: Basic hunter2==",
        "bearer hunter2hunter2",
        "Cookie: a=b; session=hunter2",
        "https://me:hunter2@example.com/x",
        "postgresql://me:p@hunter2@example.com/x",
        "https://hunter2@github.com/me/it.git",
        "https://example.com/x?key=hunter2&y=1",
        "sk-hunter2hunter2",
        "sk-ant-api03-hunter2-hunter2_AA",
        "sk_live_hunter2hunter2",
        "ghp_hunter2hunter2hunter2hunter2hunter2",
        "github_pat_hunter2hunter2hunter2hunter2",
        "glpat-hunter2hunter2hunter2",
        "xoxb-hunter2-hunter2",
        "AIzahunter2hunter2hunter2hunter2hunter2",
        "ya29.hunter2hunter2hunter2",
        "eyJhbGciOiJIUzI1NiJ9.eyJodW50ZXIyhunter2.hunter2hunter2",
        PEM,
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\n  | "),
        PEM.partition("-----END")[0],
        f"private_key: {PEM}",
    ],
)
def test_a_secret_is_removed_wherever_it_stands(text: str) -> None:
    for whole in (text, f"it failed ({text})", f"ValueError({text!r}) at", f"first\n{text}\nlast"):
        redacted = redact_secrets(whole)

        assert "hunter2" not in redacted
        assert REDACTED in redacted


def test_an_aws_key_is_removed() -> None:
    assert redact_secrets("key AKIAIOSFODNN7EXAMPLE is unknown") == f"key {REDACTED} is unknown"


@pytest.mark.parametrize(
    "text",
    [
        "no such city: Rome",
        "KeyError: 'password'",
        "connect() got an unexpected keyword argument 'password'",
        "the password is wrong",
        "Unexpected token: foo",
        "max_tokens=100, input_tokens: 5",
        "bearer token expired",
        "basic authentication failed",
        "a task-force-of-eleven, and sk-learn",
        "https://example.com/page?mail=me@example.com",
        "write to me@example.com",
        "eyJ is how a token begins",
        "{'city': 'Rome', 'nights': 3, 'key': 'value'}",
        "",
    ],
)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact_secrets(text) == text


def test_what_stands_around_a_secret_can_still_be_read() -> None:
    text = "401 from https://me:x@example.com/v1: {'password': 'x', 'user': 'me'}"

    assert redact_secrets(text) == (
        f"401 from https://{REDACTED}@example.com/v1: {{'password': {REDACTED}, 'user': 'me'}}"
    )


def test_a_long_text_is_cut_so_that_no_secret_is_left_behind() -> None:
    text = f"{'x ' * (LONGEST_TEXT // 2)}password=hunter2"

    redacted = apply_redactor(redact_secrets, text)

    assert "hunter2" not in redacted
    assert redacted.endswith("[16 characters more were left out]")


def test_a_redactor_that_fails_lets_nothing_through() -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    returned: object = None
    assert apply_redactor(fail, "hunter2") == FAILED_REDACTOR
    assert apply_redactor(lambda _: returned, "hunter2") == FAILED_REDACTOR  # type: ignore[arg-type,return-value]


def test_a_redacted_text_of_any_class_is_a_plain_one() -> None:
    class Text(str):
        def __add__(self, other: str) -> str:
            raise ValueError

        def __str__(self) -> str:
            raise ValueError

    assert type(apply_redactor(Text, "hunter2")) is str


def test_a_redacted_text_can_be_stored() -> None:
    assert apply_redactor(str, "half a \ud83d") == "half a �"


VALUE = "tr0ub4dor&3/zürich"


@pytest.mark.parametrize("around", ["", "a", "ab", "abc"])
def test_value_of_secret_variable_is_removed_in_every_form(
    monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    monkeypatch.setenv("DB_PASSWORD", VALUE)
    data = f"{around}{VALUE}{around}".encode()

    forms = [VALUE, quote(VALUE), quote_plus(VALUE), *(f(data).decode() for f in BASE64)]

    for form in forms:
        assert REDACTED in redact_secrets(f"it said <{form}>")
        assert form not in redact_secrets(f"it said <{form}>")


def test_value_of_secret_setting_is_removed() -> None:
    remember_secrets({"api_key": "quiet river stone", "city": "Rome and Naples"})

    text = redact_secrets("quiet river stone in Rome and Naples")

    assert text == f"{REDACTED} in Rome and Naples"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "short"),
        ("DB_PASSWORD", "Password"),
        ("SSL_KEY_FILE", "/etc/ssl/server.pem"),
        ("AWS_ACCESS_KEY_ID", "harmless text"),
        ("GREETING", "harmless text"),
    ],
)
def test_harmless_values_stay(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)

    assert redact_secrets(f"a {value} here") == f"a {value} here"
