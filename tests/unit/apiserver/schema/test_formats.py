"""Which texts have which format, as kube-openapi's checks decide."""

from __future__ import annotations

import pytest

from remuda.apiserver.schema.formats import check_for, recognised

GOOD = {
    "date-time": ["2020-01-01T00:00:00Z", "2020-02-29t23:59:59.123+01:00", "2020-01-31T00:00:00z"],
    "date": ["2020-02-29", "1999-12-31"],
    "duration": ["1h2m", "10s", "1.5h", "0", "3 days", "22 ns", "-1m", "1w"],
    "ipv4": ["10.0.0.1", "010.1.1.1", "::ffff:1.2.3.4"],
    "ipv6": ["::1", "2001:db8::1"],
    "cidr": ["10.0.0.0/8", "2001:db8::/32"],
    "mac": ["01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-AB"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567e89b12d3a456426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "hostname": ["example.com", "a", "ex-ample.london", "münchen.de"],
    "email": ["a@b.c", "Joe <joe@example.com>"],
    "uri": [
        "http://a.b/c?d=%2F",
        "/abs/path",
        "mailto:someone@example.com",
        "http://localhost:3000/",
        "http://foobar.com/t$-_.+!*\\'(),",
    ],
    "byte": ["YQ==", "YWJj"],
    "password": ["", "anything"],
    "creditcard": ["4220-8554-2622-2389"],
    "isbn": ["3836221195", "978-4-87311-368-5"],
    "ssn": ["191-60-2869"],
    "hexcolor": ["#f00", "CCccCC"],
    "rgbcolor": ["rgb(0,  31, 255)"],
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "k8s-short-name": ["a-1"],
    "k8s-long-name": ["a.b-c"],
}
BAD = {
    "date-time": ["2020-01-01", "2020-02-30T00:00:00Z", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00", ""],
    "date": ["2021-02-29", "2020-1-1", "20-01-01"],
    "duration": ["", "abc", "h", "1y"],
    "ipv4": ["10.0.0", "256.1.1.1", "::1", "a.b.c.d"],
    "ipv6": ["10.0.0.1", "fe80::1%eth0", "x"],
    "cidr": ["10.0.0.0", "10.0.0.0/33", "x/8"],
    "mac": ["123", "3D-F2-C9-A6-B3:4F", ""],
    "uuid": ["123", "123e4567-e89b-12d3-a456-42661417400g"],
    "uuid4": ["123e4567-e89b-12d3-a456-426614174000"],
    "hostname": ["-a", "a_b", "a..b", "a" * 64, "example.c"],
    "email": ["a", "@b", "a b@c", ""],
    "uri": ["", "foobar.com", "./rel", "http://a b/"],
    "byte": ["", "YQ=", "Y"],
    "creditcard": ["4220855426213389"],
    "isbn": ["3423214121"],
    "ssn": ["00-90-8787"],
    "hexcolor": ["#ff"],
    "rgbcolor": ["rgb(1,349,275)"],
    "bsonobjectid": ["507f"],
    "k8s-short-name": ["A", "a" * 64, "a."],
    "k8s-long-name": ["a..b", "-a"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts])
def test_has_the_format(name: str, text: str) -> None:
    check = check_for(name)
    assert check is not None
    assert check(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_has_it_not(name: str, text: str) -> None:
    check = check_for(name)
    assert check is not None
    assert not check(text)


def test_a_format_counts_only_on_its_type() -> None:
    assert recognised("string", "date-time")
    assert recognised("", "datetime")
    assert recognised("integer", "int32")
    assert not recognised("string", "int32")
    assert not recognised("object", "date")
    assert not recognised("string", "zz")
