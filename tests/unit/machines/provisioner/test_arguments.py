"""The command line: rancher-machine's own words, as Jobs say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.machines.errors import DriverError, Reason
from remuda.machines.options import Flag, FlagKind, Options, field_of, flag_of
from remuda.machines.provisioner.arguments import driver_arguments, parse
from remuda.machines.provisioner.external_driver import without_ours
from tests.unit.machines.program_output import parsed

JOB = [
    "--driver-download-url=",
    "--driver-hash=",
    "--secret-namespace=fleet-default",
    "--secret-name=c1-machine-state",
    "create",
    "--driver=amazonec2",
    "--custom-install-script=/run/secrets/machine/value",
    "--hostname-override=short",
    "--amazonec2-monitoring",
    "--amazonec2-region=us-west-2",
    "--amazonec2-security-group=a",
    "--amazonec2-security-group=b",
    "c1-pool1-abcde",
]
FLAGS = (
    Flag("amazonec2-region", default="us-east-1", env="AWS_DEFAULT_REGION"),
    Flag("amazonec2-monitoring", FlagKind.BOOL),
    Flag("amazonec2-security-group", FlagKind.STRINGS, ("rancher-nodes",)),
    Flag("amazonec2-root-size", FlagKind.INT, 16, env="AWS_ROOT_SIZE"),
    Flag("amazonec2-secret-key", env="AWS_SECRET_ACCESS_KEY", also=("AWS_SECRET_KEY",), secret=True),
)


def test_a_jobs_words_are_understood() -> None:
    found = parse(JOB)
    assert (found.verb, found.names, found.driver, found.hostname) == ("create", ("c1-pool1-abcde",), "amazonec2", "short")
    assert (found.secret_namespace, found.secret_name, found.script) == (
        "fleet-default",
        "c1-machine-state",
        "/run/secrets/machine/value",
    )
    assert driver_arguments(found.rest, FLAGS) == {
        "amazonec2-monitoring": True,
        "amazonec2-region": "us-west-2",
        "amazonec2-security-group": ("a", "b"),
    }


def test_values_may_be_words_of_their_own_and_come_from_the_environment() -> None:
    words = ["-s", "/store", "create", "-d", "generic", "--generic-ip-address", "10.0.0.1", "m"]
    found = parse(words, {"K8S_SECRET_NAME": "s", "K8S_SECRET_NAMESPACE": "ns", "KUBECONFIG": "/k"})
    assert (found.storage, found.driver, found.rest) == (Path("/store"), "generic", ("--generic-ip-address", "10.0.0.1"))
    assert (found.secret_name, found.secret_namespace, found.kubeconfig) == ("s", "ns", "/k")


def test_a_removal() -> None:
    found = parse(["--secret-name=s", "rm", "-y", "--update-config", "m-1", "m-2"])
    assert (found.verb, found.names, found.force, found.secret_namespace) == ("rm", ("m-1", "m-2"), False, "default")
    assert parse(["rm", "-f", "m"]).force


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "nothing is asked for"),
        (["--nope=1", "create"], "there is no option --nope"),
        (["--secret-name"], "needs a value"),
        (["start", "m"], "start is not known here"),
        (["create", "--driver=x"], "no name for the machine"),
        (["create", "m"], "no driver is named"),
        (["create", "--driver=x", "../m"], "is no name for a machine"),
        (["rm", "-y"], "no machine is named"),
        (["rm", "--nope", "m"], "there is no option --nope"),
    ],
)
def test_what_is_not_understood_is_said(words: list[str], why: str) -> None:
    with pytest.raises(DriverError, match=why) as caught:
        parse(words)
    assert caught.value.reason is Reason.INVALID


@pytest.mark.parametrize("words", [["--amazonec2-nope=1"], ["word"], ["--amazonec2-region"]])
def test_a_driver_knows_its_flags_only(words: list[str]) -> None:
    with pytest.raises(DriverError):
        driver_arguments(words, FLAGS)


def test_the_command_line_counts_before_the_environment_before_the_default() -> None:
    environ = {"AWS_DEFAULT_REGION": "eu-1", "AWS_ROOT_SIZE": "20", "AWS_SECRET_KEY": "hush"}
    options = Options.read("amazonec2", FLAGS, {"amazonec2-root-size": "30"}, environ)
    assert (options.text("region"), options.number("root-size"), options.on("monitoring")) == ("eu-1", 30, False)
    assert (options.texts("security-group"), options.text("secret-key")) == (("rancher-nodes",), "hush")
    assert options.given("region") and not options.given("monitoring")
    assert options.kept() == {"amazonec2-region": "eu-1", "amazonec2-root-size": 30}
    assert options.replaced(root_size=40).number("root-size") == 40


def test_fields_of_an_object_are_options_too() -> None:
    options = Options.read("amazonec2", FLAGS, {"rootSize": "30", "securityGroup": ["x"], "monitoring": True})
    assert (options.number("root-size"), options.texts("security-group"), options.on("monitoring")) == (30, ("x",), True)
    assert (field_of("amazonec2-vpc-id"), flag_of("amazonec2", "vpcId")) == ("vpcId", "amazonec2-vpc-id")


@pytest.mark.parametrize(
    ("field", "value"), [("rootSize", "large"), ("monitoring", "maybe"), ("securityGroup", 1), ("nope", "x")]
)
def test_a_wrong_value_names_its_field_and_shows_no_secret(field: str, value: object) -> None:
    with pytest.raises(DriverError) as caught:
        Options.read("amazonec2", FLAGS, {field: value})
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID, field)
    with pytest.raises(DriverError) as secret:
        Options.read("amazonec2", FLAGS, {"secretKey": ["hush"]})
    assert "hush" not in str(secret.value)


def test_the_last_line_is_the_failure() -> None:
    failure = DriverError(Reason.QUOTA_EXCEEDED, "you have asked for more than 32 vCPUs: ask for more, or use less")
    found = parsed(f"creating m\n{failure}\n")
    assert (found.reason, found.message) == (failure.reason, failure.message)
    assert (parsed("hello\nsomething: broke\n").reason, parsed("x\nsomething: broke\n").message) == (
        Reason.FAILED,
        "something: broke",
    )
    assert parsed("").reason is Reason.FAILED


def test_rancher_machine_gets_its_words_without_ours() -> None:
    assert without_ours(["--driver-download-url=", "--driver-hash", "x", "create", "m"]) == ["create", "m"]
