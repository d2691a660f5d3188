"""Settings and features: which value is in force, and which texts are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda import __version__
from remuda.access.settings.settings import (
    FEATURES,
    SETTINGS,
    Features,
    SettingError,
    Settings,
    parse_features,
    problem_of,
)
from remuda.kube import certificates
from remuda.kube.clock import Entropy, VirtualClock


def stored(name: str, value: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value}


def certificate() -> tuple[str, str]:
    """A certificate and its key, in PEM."""
    entropy = Entropy()
    key = certificates.new_key(entropy)
    made = certificates.sign_authority(key, VirtualClock(), entropy)
    return certificates.certificate_pem(made).decode(), certificates.key_pem(key).decode()


# --- what an attacker or a slip of the hand would write -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server-url", "http://remuda.example"),
        ("server-url", "https://"),
        ("server-url", "https:remuda.example"),
        ("server-url", "HTTPS://remuda.example"),
        ("server-url", "https://remuda.example/"),
        ("server-url", "https://remuda.example/path"),
        ("server-url", "https://remuda.example?x=1"),
        ("server-url", "https://remuda.example?"),
        ("server-url", "https://remuda.example#"),
        ("server-url", "https://admin:secret@remuda.example"),
        ("server-url", "https://trusted.example@evil.example"),
        ("server-url", "https://remuda.example\\@evil.example"),
        ("server-url", "https://remuda.example; rm -rf /"),
        ("server-url", "https://$(reboot)"),
        ("server-url", "https://`reboot`"),
        ("server-url", "https://remuda.example\nX: y"),
        ("server-url", "https://remuda.example:0"),
        ("server-url", "https://remuda.example:99999"),
        ("server-url", "https://rémuda.example"),
        ("server-url", "https://[::1"),
        ("server-url", "javascript:alert(1)"),
        ("agent-tls-mode", "none"),
        ("agent-tls-mode", "Strict"),
        ("agent-image", "rancher/agent:latest --privileged"),
        ("agent-image", "Rancher/agent"),
        ("agent-image", "rancher/agent@sha256:1234"),
        ("agent-image", "rancher/../agent"),
        ("agent-image", "rancher/agent:"),
        ("system-agent-installer-image", "rancher/installer:"),
        ("system-agent-install-script", "file:///etc/passwd"),
        ("system-agent-install-script", "http://user@host/install.sh"),
        ("whitelist-envvars", "HTTP_PROXY,$(id)"),
        ("whitelist-envvars", "HTTP_PROXY,,NO_PROXY"),
        ("whitelist-envvars", "A=b"),
        ("fleet-default-workspace-name", "Fleet"),
        ("fleet-default-workspace-name", "a/b"),
        ("system-default-registry", "https://registry.example"),
        ("system-default-registry", "registry.example/"),
        ("system-default-registry-pull-secrets", "a,../b"),
        ("crt-default-ttl-minutes", "29"),
        ("crt-default-ttl-minutes", "-1"),
        ("crt-default-ttl-minutes", "٤٣"),
        ("crt-default-ttl-minutes", "9" * 5000),
        ("crt-default-grace-period-minutes", "9"),
        ("system-agent-installer-token-short-ttl", "-30s"),
        ("system-agent-installer-token-short-ttl", "30"),
        ("system-agent-installer-token-ttl-enabled", "yes"),
        ("system-agent-version", "v1"),
        ("rke-metadata-config", "[]"),
        ("rke-metadata-config", "{"),
        ("rke-metadata-config", '{"url":"file:///x","refresh-interval-minutes":"1"}'),
        ("rke-metadata-config", '{"url":"https://x.example/d.json","refresh-interval-minutes":true}'),
        ("rke-metadata-config", '{"k3s":[]}'),
        ("rke-metadata-config", '{"url":null,"k4s":{}}'),
        ("cluster-agent-default-affinity", "null"),
        ("cluster-agent-default-affinity", "[" * 100_000),
        ("cacerts", "no certificate"),
        ("cacerts", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
        ("agent-image", "rancher/agent\0"),
    ],
)
def test_a_bad_value_is_refused_in_a_sentence_that_names_the_setting_and_not_the_value(name: str, value: str) -> None:
    problem = problem_of(name, value)
    assert problem.startswith(f"{name} must ")
    # Short ones may be part of the sentence by chance.
    assert len(value) < 8 or value not in problem


def test_a_private_key_among_certificates_is_refused() -> None:
    public, private = certificate()
    assert problem_of("cacerts", public + public) == ""
    assert "private key" in problem_of("cacerts", public + private)


def test_an_unknown_setting_is_refused() -> None:
    assert problem_of("no-such", "x") == "there is no setting 'no-such'"
    with pytest.raises(SettingError, match="no setting"):
        Settings().effective("no-such")
    assert len(problem_of("x" * 10_000, "")) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server-url", "https://remuda.example"),
        ("server-url", "https://remuda.example:8443"),
        ("server-url", "https://192.0.2.1:8443"),
        ("server-url", "https://[2001:db8::1]:8443"),
        ("agent-tls-mode", "system-store"),
        ("agent-image", "registry.example:5000/team/agent:v1@sha256:" + "a" * 64),
        ("agent-image", "localhost/agent"),
        ("system-agent-installer-image", "registry.example:5000/rancher/system-agent-installer-"),
        ("system-default-registry", "registry.example:5000/mirror"),
        ("delete-machine-on-failure-after", "1h30m"),
        ("rke-metadata-config", '{"url":"https://x.example/d.json","refresh-interval-minutes":0}'),
        ("rke-metadata-config", '{"url":"","refresh-interval-minutes":"1440"}'),
        ("rke-metadata-config", '{"k3s":{"releases":[]}}'),
        ("k3s-default-version", "v1.34.1+k3s1"),
        ("rke2-provisioning-prime-default", "true"),
        ("system-default-registry-pull-secrets", "one,two.three"),
    ],
)
def test_a_good_value_is_taken(name: str, value: str) -> None:
    assert problem_of(name, value) == ""


# --- what is in force -----------------------------------------------------------------------------------------------------


def test_every_default_keeps_its_own_rule_and_they_fit_each_other() -> None:
    assert [problem_of(name, known.default) for name, known in SETTINGS.items() if known.default] == [""] * sum(
        bool(known.default) for known in SETTINGS.values()
    )
    assert Settings().problems() == []
    assert {found.source for found in Settings().everything()} == {"default"}


def test_the_object_comes_before_the_environment_and_that_before_the_default() -> None:
    name, env = "agent-image", {"CATTLE_AGENT_IMAGE": "from/env:1"}
    assert (Settings().effective(name).value, Settings().effective(name).source) == (
        f"remuda/cluster-agent:{__version__}",
        "default",
    )
    found = Settings([], env).effective(name)
    assert (found.value, found.source) == ("from/env:1", "env")
    found = Settings([stored(name, "from/object:1")], env).effective(name)
    assert (found.value, found.source) == ("from/object:1", "db")


def test_empty_means_not_said_wherever_it_is() -> None:
    found = Settings([stored("agent-image", "")], {"REMUDA_AGENT_IMAGE": "", "CATTLE_AGENT_IMAGE": "from/env:1"})
    assert found.text("agent-image") == "from/env:1"


def test_our_own_variable_comes_before_ranchers() -> None:
    both = {"REMUDA_SERVER_URL": "https://ours.example", "CATTLE_SERVER_URL": "https://theirs.example"}
    assert Settings([], both).text("server-url") == "https://ours.example"


def test_what_breaks_its_rule_is_passed_over_and_told() -> None:
    env = {"REMUDA_SERVER_URL": "ftp://x", "CATTLE_SERVER_URL": "https://theirs.example"}
    settings = Settings([stored("server-url", "nonsense"), stored("agent-image", 7)], env)
    found = settings.effective("server-url")
    assert (found.value, found.source) == ("https://theirs.example", "env")
    assert found.problems == (
        "server-url must begin with https://",
        "server-url (from REMUDA_SERVER_URL) must begin with https://",
    )
    assert settings.problems() == list(found.problems)
    assert settings.effective("agent-image").source == "default"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"crt-default-ttl-minutes": "60", "crt-default-grace-period-minutes": "60"},
            "crt-default-grace-period-minutes must be less than crt-default-ttl-minutes, which is 60",
        ),
        (
            {"system-agent-installer-token-short-ttl": "1h"},
            "system-agent-installer-token-short-ttl must not be longer than system-agent-installer-token-long-ttl, which is 30m",
        ),
    ],
)
def test_settings_that_do_not_fit_each_other_are_told(values: dict[str, str], problem: str) -> None:
    assert Settings([stored(name, value) for name, value in values.items()]).problems() == [problem]


def test_values_come_as_what_they_are() -> None:
    settings = Settings([stored("delete-machine-on-failure-after", "1h30m0.5s")])
    assert settings.number("crt-default-ttl-minutes") == 43200
    assert settings.flag("system-agent-installer-token-ttl-enabled") is True
    assert settings.seconds("delete-machine-on-failure-after") == 5400.5


@given(st.sampled_from(sorted(SETTINGS)), st.text())
def test_whatever_is_written_the_effective_value_keeps_its_rule(name: str, text: str) -> None:
    found = Settings([stored(name, text)], {SETTINGS[name].variables[0]: text}).effective(name)
    assert problem_of(name, found.value) == ""


# --- features -------------------------------------------------------------------------------------------------------------


def feature(name: str, value: object = None, locked: object = None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"value": value}, "status": {"lockedValue": locked}}


@pytest.mark.parametrize(
    ("objects", "environment", "value", "source"),
    [
        ([feature("fleet", True, False)], {"REMUDA_FEATURES": "fleet=true"}, False, "locked"),
        ([feature("fleet", False)], {"REMUDA_FEATURES": "fleet=true"}, False, "db"),
        ([feature("fleet")], {"CATTLE_FEATURES": "rke2=true, fleet=false"}, False, "env"),
        ([feature("fleet")], {}, True, "default"),
        ([feature("fleet", "false", "false")], {}, True, "default"),
        ([{"metadata": {"name": "fleet"}, "spec": None}], {}, True, "default"),
    ],
)
def test_a_locked_value_comes_first_then_the_object_then_the_environment(
    objects: list[dict[str, Any]], environment: dict[str, str], value: bool, source: str
) -> None:
    found = Features(objects, environment).effective("fleet")
    assert (found.value, found.source) == (value, source)


def test_features_that_can_not_be_read_are_passed_over_and_told() -> None:
    features = Features([], {"CATTLE_FEATURES": "fleet=maybe,nothing=true,turtles=true,turtles=false"})
    assert features.problems == (
        "CATTLE_FEATURES: feature fleet must be true or false",
        "CATTLE_FEATURES: there is no feature 'nothing'",
        "CATTLE_FEATURES: feature turtles is set to both true and false",
    )
    assert features.enabled("fleet") is True
    with pytest.raises(SettingError):
        features.enabled("nothing")


@given(st.dictionaries(st.sampled_from(sorted(FEATURES)), st.booleans()))
def test_a_list_of_features_is_read_as_it_was_written(switched: dict[str, bool]) -> None:
    text = ",".join(f"{name}={str(value).lower()}" for name, value in switched.items())
    assert parse_features(text) == (switched, [])
    assert {found.name: found.value for found in Features([], {"REMUDA_FEATURES": text}).everything()} == {**FEATURES, **switched}
