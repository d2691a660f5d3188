"""Plans, their history, and how outputs travel."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from remuda.agent.clock import elapsed, parse_unix_date, unix_date
from remuda.agent.errors import PlanError
from remuda.agent.plans import outputs
from remuda.agent.plans.outputs import PeriodicOutput
from remuda.agent.plans.plan import history_bytes, parse


def test_the_checksum_is_that_of_the_bytes_as_they_came() -> None:
    data = b'{ "files": null,  "error": "" }'
    assert parse(data).checksum == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"files":[1]}',
        '{"files":[{"path":1}]}',
        '{"instructions":[{"args":"x"}]}',
        '{"probes":{"a":[]}}',
        '{"files":[{"uid":true}]}',
    ],
)
def test_a_plan_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse(text.encode())


def test_defaults_of_probes_and_periods() -> None:
    plan = parse(b'{"probes":{"p":{"httpGet":{"url":"http://x"}}},"periodicInstructions":[{"name":"a"}]}')
    assert (plan.probes["p"].success_threshold, plan.probes["p"].failure_threshold) == (1, 3)
    assert plan.periodic[0].period_seconds == 600


def test_history_has_the_originals_order_and_escapes() -> None:
    data = json.dumps(
        {
            "periodicInstructions": [{"periodSeconds": 5, "name": "p", "command": "c"}],
            "instructions": [{"saveOutput": True, "command": "sh", "args": ["-c", "a>b"], "env": ["A=1"], "name": "one"}],
            "unknown": 1,
        }
    ).encode()
    plan = parse(data)
    assert history_bytes(plan).decode() == (
        '{"Plan":{"instructions":[{"name":"one","env":["A=1"],"args":["-c","a\\u003eb"],"command":"sh","saveOutput":true}],'
        '"periodicInstructions":[{"name":"p","command":"c","periodSeconds":5}]},"Checksum":"' + plan.checksum + '"}'
    )


def test_one_time_outputs_are_gzip_of_json_of_base64() -> None:
    data = outputs.encode_one_time({"two": None, "one": b"out1\n"})
    assert json.loads(gzip.decompress(data)) == {"one": "b3V0MQo=", "two": None}
    assert data[4:8] == b"\0\0\0\0", "no time inside, or equal outputs would differ"
    assert outputs.decode_one_time(data) == {"one": b"out1\n", "two": None}


def test_periodic_outputs_have_every_key() -> None:
    data = outputs.encode_periodic({"p": PeriodicOutput("p", b"x")})
    assert list(json.loads(gzip.decompress(data))["p"]) == [
        "name",
        "stdout",
        "stderr",
        "exitCode",
        "lastSuccessfulRunTime",
        "failures",
        "lastFailedRunTime",
    ]
    assert gzip.decompress(outputs.encode_periodic({})) == b"{}"
    assert outputs.decode_periodic(data) == {"p": PeriodicOutput("p", b"x")}


def test_broken_outputs_count_as_none() -> None:
    assert outputs.decode_one_time(b"\x1f\x8bbroken") == {}
    assert outputs.decode_periodic(gzip.compress(b"[]")) == {}


def test_an_output_that_no_secret_could_hold_loses_its_middle() -> None:
    import random

    noise = random.Random(1).randbytes(600_000)
    data = outputs.encode_one_time({"big": b"begin" + noise + b"end", "small": b"ok"})
    assert len(data) <= outputs.LARGEST
    found = outputs.decode_one_time(data)
    assert found["small"] == b"ok"
    assert found["big"] is not None and found["big"].startswith(b"begin") and found["big"].endswith(b"end")


def test_unix_dates_are_gos() -> None:
    moment = parse_unix_date("Sun Nov  1 07:03:16 UTC 2026")
    assert moment == 1793516596
    assert parse_unix_date(unix_date(1800000000)) == 1800000000
    assert parse_unix_date("yesterday") is None
    assert parse_unix_date("Sun Foo  1 07:03:16 UTC 2026") is None


def test_a_stamp_from_the_future_counts_as_long_ago() -> None:
    now = 1800000000.0
    assert not elapsed(unix_date(now - 10), 30, now)
    assert elapsed(unix_date(now - 31), 30, now)
    assert elapsed(unix_date(now + 3600), 30, now), "the clock was set back: nobody waits an hour"
