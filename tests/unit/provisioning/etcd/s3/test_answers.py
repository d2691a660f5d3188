from __future__ import annotations

import pytest

from remuda.provisioning.etcd.s3 import answers
from remuda.provisioning.etcd.s3.answers import MalformedAnswer, Why
from remuda.provisioning.etcd.s3.place import Place

PLACE = Place("backups", endpoint="minio.example:9000")
MODIFIED = "2026-11-19T06:00:00.000Z"


def _list(*objects: str, more: str = "", encoding: str = "") -> bytes:
    encoded = f"<EncodingType>{encoding}</EncodingType>" if encoding else ""
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{encoded}{more}{"".join(objects)}</ListBucketResult>'.encode()


def _object(key: str, size: object = 1, etag: str = "&quot;e&quot;") -> str:
    told = {"Key": key, "LastModified": MODIFIED, "ETag": etag, "Size": size}
    return f"<Contents>{''.join(f'<{name}>{value}</{name}>' for name, value in told.items())}</Contents>"


def test_a_page_of_a_list() -> None:
    found = answers.page(_list(_object("a/b"), _object("c", 5 * 2**40, "plain"), more="<IsTruncated>false</IsTruncated>"))
    assert [(each.key, each.size, each.etag) for each in found.objects] == [("a/b", 1, "e"), ("c", 5 * 2**40, "plain")]
    assert found.objects[0].modified == 1795068000.0
    assert found.continuation == ""


def test_a_page_says_where_the_next_one_begins() -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>1+/=</NextContinuationToken>"
    assert answers.page(_list(more=more)).continuation == "1+/="
    with pytest.raises(MalformedAnswer, match="goes on"):
        answers.page(_list(more="<IsTruncated>true</IsTruncated>"))


def test_keys_are_escaped_only_if_the_list_says_so() -> None:
    written = "a+b%2Bc%20d&amp;%C3%BC"
    assert answers.page(_list(_object(written), encoding="url")).objects[0].key == "a b+c d&ü"
    assert answers.page(_list(_object(written))).objects[0].key == "a+b%2Bc%20d&%C3%BC"


def test_an_empty_list_and_one_without_a_namespace() -> None:
    assert answers.page(b"<ListBucketResult/>").objects == ()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not XML"),
        (b"<html><body>Login</body></html>", "not ListBucketResult"),
        (b"<ListBucketResult>", "not XML"),
        (b'<!DOCTYPE x [<!ENTITY a "aaaa">]><ListBucketResult>&a;</ListBucketResult>', "document type"),
        (_list(_object("a", "many")), "no size"),
        (_list(_object("a")).replace(MODIFIED.encode(), b"yesterday"), "no time"),
    ],
)
def test_other_answers_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(MalformedAnswer, match=why):
        answers.page(body)


def test_an_object_by_its_headers() -> None:
    headers = {
        "Content-Length": "20512",
        "Last-Modified": "Thu, 19 Nov 2026 06:00:00 GMT",
        "ETag": '"abc-2"',
        "X-Amz-Meta-K3s-Node-Name": "n1",
    }
    found = answers.headed("k", headers)
    assert (found.size, found.modified, found.etag) == (20512, 1795068000.0, "abc-2")
    assert found.user_metadata == {"k3s-node-name": "n1"}
    with pytest.raises(MalformedAnswer):
        answers.headed("k", {})


def _error(code: str, message: str = "said by the service", more: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>".encode()


@pytest.mark.parametrize(
    ("status", "body", "why", "words"),
    [
        (403, _error("SignatureDoesNotMatch"), Why.DENIED, "check secretKey"),
        (403, _error("InvalidAccessKeyId"), Why.DENIED, "check accessKey"),
        (403, _error("RequestTimeTooSkewed"), Why.DENIED, "clock of this machine"),
        (404, _error("NoSuchBucket"), Why.NO_BUCKET, "create it, or correct its name"),
        (404, b"", Why.NO_OBJECT, "404 no reason given"),
        (403, _error("QuotaExceeded"), Why.FULL, "lower the retention"),
        (507, b"<html/>", Why.FULL, "no space left"),
        (503, _error("SlowDown"), Why.BUSY, "fewer requests"),
        (500, b"", Why.BUSY, "try again later"),
        (412, b"", Why.CHANGED, "replaced meanwhile"),
        (404, _error("NoSuchAccount"), Why.OTHER, "it answered 404 NoSuchAccount"),
        (400, _error("Unheard", "of"), Why.OTHER, "it answered 400 Unheard: of"),
        (400, _error("AuthorizationHeaderMalformed", more="<Region>eu-west-1</Region>"), Why.WRONG_REGION, "it is in eu-west-1"),
    ],
)
def test_errors_say_what_to_do(status: int, body: bytes, why: Why, words: str) -> None:
    found = answers.failure("listing snapshots", PLACE, status, {}, body)
    assert found.why is why and found.status == status
    assert str(found).startswith("listing snapshots failed for the bucket backups at minio.example:9000: ")
    assert words in str(found)


def test_a_redirect_names_the_region() -> None:
    found = answers.failure("uploading x", PLACE, 301, {"x-amz-bucket-region": "ap-south-1"}, b"")
    assert found.why is Why.WRONG_REGION and "it is in ap-south-1: set region" in str(found)


def test_a_service_can_not_write_lines_or_much_into_an_error() -> None:
    found = str(answers.failure("x", PLACE, 400, {}, _error("Odd", "a\n\n b" + "c" * 1000 + "\x85")))
    assert "\n" not in found and "a b" in found and len(found) < 400
