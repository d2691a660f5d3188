"""Names, labels and annotations: Kubernetes' rules, in the words of apimachinery's validation packages."""

from __future__ import annotations

import pytest

from remuda.kube import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
    "'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("a-1", []),
        ("a" * 63, []),
        ("a" * 64, ["must be no more than 63 characters"]),
        ("a.b", ["must not contain dots"]),
        ("A", [LABEL]),
        ("", [LABEL]),
        ("a\n", [LABEL]),
        ("é" * 32, ["must be no more than 63 characters", LABEL]),
    ],
)
def test_dns_labels(value: str, problems: list[str]) -> None:
    assert names.dns_label_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("a.b-c.1", []),
        ("a" * 253, []),
        ("a" * 254, ["must be no more than 253 characters"]),
        ("a..b", [SUBDOMAIN]),
        ("a_b", [SUBDOMAIN]),
        ("A" * 254, ["must be no more than 253 characters", SUBDOMAIN]),
    ],
)
def test_dns_subdomains(value: str, problems: list[str]) -> None:
    assert names.dns_subdomain_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"), [("a1", []), ("1a", [DNS1035]), ("a" * 64, ["must be no more than 63 characters"])]
)
def test_old_dns_labels(value: str, problems: list[str]) -> None:
    assert names.dns1035_label_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("simple", []),
        ("Upper_Case.OK", []),
        ("example.com/Name", []),
        ("a" * 253 + "/" + "b" * 63, []),
        ("", ["name part must be non-empty", f"name part {KEY}"]),
        ("example.com/", ["name part must be non-empty", f"name part {KEY}"]),
        ("/name", ["prefix part must be non-empty"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("é" * 32, ["name part must be no more than 63 bytes", f"name part {KEY}"]),
        ("Example.com/a", [f"prefix part {SUBDOMAIN}"]),
        ("a" * 254 + "/b", ["prefix part must be no more than 253 bytes"]),
        ("one/two/three", [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]),
        ("-a", [f"name part {KEY}"]),
    ],
)
def test_label_keys(value: str, problems: list[str]) -> None:
    assert names.qualified_name_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("", []),
        ("a_B.1", []),
        ("a" * 64, ["must be no more than 63 bytes"]),
        ("ā" * 32, ["must be no more than 63 bytes", VALUE]),
        ("-a", [VALUE]),
    ],
)
def test_label_values(value: str, problems: list[str]) -> None:
    assert names.label_value_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("a.B_c-1", []),
        ("..data", ["must not start with '..'"]),
        (".", ["must not be '.'"]),
        ("..", ["must not be '..'"]),
        ("a/b", [CONFIG_KEY]),
        ("a" * 254, ["must be no more than 253 characters"]),
    ],
)
def test_keys_of_config_maps(value: str, problems: list[str]) -> None:
    assert names.config_key_problems(value) == problems


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("system:node", []),
        (".", ["may not be '.'"]),
        ("..", ["may not be '..'"]),
        ("a/b%c", ["may not contain '/'", "may not contain '%'"]),
    ],
)
def test_names_in_a_path(value: str, problems: list[str]) -> None:
    assert names.path_segment_problems(value) == problems


def test_labels_are_checked_by_key_and_value() -> None:
    found = names.label_errors({"good": "value", "b@d": "-"}, "metadata.labels")
    assert [str(error).partition(": a valid")[0].partition(": name part")[0] for error in found] == [
        'metadata.labels: Invalid value: "b@d"',
        'metadata.labels: Invalid value: "-"',
    ]


def test_a_good_label_stays_good_and_a_bad_one_bad() -> None:
    for _ in range(2):
        assert names.label_errors({"a": "b"}, "l") == []
        assert len(names.label_errors({"a": "b@d"}, "l")) == 1


def test_annotation_keys_may_have_capitals_in_their_prefix_which_label_keys_may_not() -> None:
    for _ in range(2):
        assert names.annotation_errors({"Example.com/a": "any\nthing"}, "a") == []
        assert len(names.label_errors({"Example.com/a": ""}, "l")) == 1


def test_annotations_together_are_limited_in_bytes() -> None:
    at_limit = {"a": "x" * (256 * 1024 - 1)}
    assert names.annotation_errors(at_limit, "a") == []
    assert len(names.annotation_errors({"a": "é" * (128 * 1024)}, "a")) == 1


def test_what_is_remembered_of_good_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_good", set())
    monkeypatch.setattr(names, "_GOOD_MAX", 10)
    for number in range(100):
        names.annotation_errors({f"key-{number}": ""}, "a")
        names.label_errors({f"key-{number}": "v"}, "l")
        assert len(names._good) <= 10
