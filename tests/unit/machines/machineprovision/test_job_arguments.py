"""What a Job runs, from the spec of its machine (docs/reference/machines.md#the-program,
docs/reference/machines.md#arguments)."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.machines.machineprovision.job_arguments import (
    DriverFacts,
    OwningCluster,
    Places,
    arguments,
    driver_facts,
    driver_of,
    flags,
    hostname,
    variables,
)

Obj = dict[str, Any]
HERE = OwningCluster("c-m-bcdfg245", "c1")


def infra(name: str = "c1-pool1-abcde", annotations: Obj | None = None, **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "fleet-default", "annotations": annotations or {}}
    return {"apiVersion": "rke-machine.cattle.io/v1", "kind": "Amazonec2Machine", "metadata": meta, "spec": spec}


def test_the_arguments_of_a_create_job_are_those_of_rancher() -> None:
    made = infra(
        region="us-west-2",
        zone="a",
        instanceType="t3a.medium",
        rootSize="40",
        securityGroup=["rancher-nodes"],
        sshUser="ubuntu",
        subnetId="subnet-1",
        vpcId="vpc-1",
        common={"cloudCredentialSecretName": "cattle-global-data:cc-1", "labels": {"a": "b"}},
        providerID="aws:///x",
    )
    found, files = arguments(made, None, DriverFacts("amazonec2"), HERE, removing=False)
    assert found == [
        "--driver-download-url=",
        "--driver-hash=",
        "--secret-namespace=fleet-default",
        "--secret-name=c1-pool1-abcde-machine-state",
        "create",
        "--driver=amazonec2",
        "--custom-install-script=/run/secrets/machine/value",
        "--amazonec2-instance-type=t3a.medium",
        "--amazonec2-region=us-west-2",
        "--amazonec2-root-size=40",
        "--amazonec2-security-group=rancher-nodes",
        "--amazonec2-ssh-user=ubuntu",
        "--amazonec2-subnet-id=subnet-1",
        "--amazonec2-tags=kubernetes.io/cluster/c-m-bcdfg245,owned",
        "--amazonec2-vpc-id=vpc-1",
        "--amazonec2-zone=a",
        "c1-pool1-abcde",
    ]
    assert files == {}


def test_a_delete_job_asks_for_no_more_than_the_name() -> None:
    found, _ = arguments(infra(region="x"), None, DriverFacts("amazonec2", "https://x/d", "abc"), HERE, removing=True)
    assert found == [
        "--driver-download-url=https://x/d",
        "--driver-hash=abc",
        "--secret-namespace=fleet-default",
        "--secret-name=c1-pool1-abcde-machine-state",
        "rm",
        "-y",
        "--update-config",
        "c1-pool1-abcde",
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("v", ["--pod-a-field=v"]),
        ("--other=x", ["--pod-a-field=--other=x"]),
        (True, ["--pod-a-field"]),
        (False, []),
        (7, ["--pod-a-field=7"]),
        (7.0, ["--pod-a-field=7"]),
        (["b", "a"], ["--pod-a-field=a", "--pod-a-field=b"]),
        ([], []),
        (None, []),
        ({"a": "b"}, []),
    ],
    ids=["empty", "text", "dashes", "true", "false", "number", "float", "list", "nothing-in-it", "null", "object"],
)
def test_a_field_becomes_a_flag_by_its_type(value: Any, expected: list[str]) -> None:
    assert flags("pod", {"aField": value}, OwningCluster()) == expected


def test_amazon_tags_and_groups_are_completed_only_by_default() -> None:
    tagged = flags("amazonec2", {"tags": "a,b"}, HERE)
    assert tagged == ["--amazonec2-tags=a,b,kubernetes.io/cluster/c-m-bcdfg245,owned"]
    own = flags("amazonec2", {"tags": "kubernetes.io/cluster/x,shared"}, HERE)
    assert own == ["--amazonec2-tags=kubernetes.io/cluster/x,shared"]
    assert "--amazonec2-security-group-readonly" in flags("amazonec2", {"securityGroup": ["mine"]}, HERE)
    assert "--amazonec2-security-group-readonly" not in flags(
        "amazonec2", {"securityGroup": ["mine"], "securityGroupReadonly": False}, HERE
    )


def test_harvester_is_told_the_cluster() -> None:
    assert flags("harvester", {}, HERE) == ["--harvester-cluster-name=c1"]


def test_contents_of_files_are_no_arguments_but_files() -> None:
    facts = DriverFacts("amazonec2", aliases={"sshKeyContents": "sshKeypath", "userdata": "userdata"})
    made = infra(sshKeyContents="PRIVATE", userdata="#cloud-config\n")
    found, files = arguments(made, None, facts, OwningCluster(), removing=False, places=Places("/x/script", "/x/files"))
    assert files == {"id_rsa": "PRIVATE\n", "userdata": "#cloud-config\n"}
    assert "--amazonec2-ssh-keypath=/x/files/id_rsa" in found and "--amazonec2-userdata=/x/files/userdata" in found
    assert "--custom-install-script=/x/script" in found
    assert not any("PRIVATE" in each for each in found)


def test_a_long_name_is_cut_for_the_instance_and_shorter_for_its_hostname() -> None:
    made = infra("a" * 70, {"rke.cattle.io/hostname-length-limit": "15"})
    found, _ = arguments(made, None, DriverFacts("pod"), OwningCluster(), removing=False)
    assert len(found[-1]) == 63
    assert hostname(made, None) == "aaaaaaaaa-" + found[-2].removeprefix("--hostname-override=")[-5:]
    assert len(hostname(made, None)) == 15
    assert hostname(infra("a.b"), None) == "a-b"
    assert hostname(infra("a.b", {"rke.cattle.io/hostname-length-limit": "7"}), None) == "a-b", "fewer than ten are no limit"


def test_what_a_node_driver_says() -> None:
    built_in = {
        "metadata": {"annotations": {"nodedriver.cattle.io/file-to-field-aliases": "a:b, c:d,,e"}},
        "spec": {"url": "local://"},
    }
    assert driver_facts("x", built_in) == DriverFacts("x", aliases={"a": "b", "c": "d"})
    assert driver_facts("x", {"spec": {"url": "https://x", "checksum": "1"}}) == DriverFacts("x", "https://x", "1")
    gone = driver_facts("x", None, {"driverUrl": "https://x", "driverHash": "1"})
    assert gone == DriverFacts("x", "https://x", "1"), "who removes a machine needs the driver that made it"
    assert driver_of("VmwarevsphereMachine") == "vmwarevsphere"


KEYED = DriverFacts("amazonec2", aliases={"sshKeyContents": "sshKeypath"})
VALUES = {"secretKey": "s3cret", "sshKeyContents": "PEM"}


def test_secret_fields_are_in_the_environment_and_in_files_and_in_no_argument() -> None:
    sealed = dict.fromkeys(VALUES, "remuda.dev/sealed:00")
    found, files = arguments(infra(region="x", **sealed), None, KEYED, HERE, removing=False, secrets=VALUES)
    assert files == {"id_rsa": "PEM\n"} and "--amazonec2-ssh-keypath=/path/to/machine/files/id_rsa" in found
    assert variables(KEYED, VALUES) == {"AWS_SECRET_ACCESS_KEY": "s3cret"}
    assert not any("secret-key" in word or "s3cret" in word or "sealed" in word for word in found)
    removed, files = arguments(infra(**sealed), None, KEYED, HERE, removing=True, secrets=VALUES)
    assert files == {"id_rsa": "PEM\n"} and removed[-4:] == ["rm", "-y", "--update-config", "c1-pool1-abcde"]


def test_a_secret_of_a_driver_whose_variables_are_not_known_is_named_in_a_job_and_given_to_a_process() -> None:
    facts, values = DriverFacts("pnap"), {"clientSecret": "s3cret"}
    made = {**infra(clientSecret="remuda.dev/sealed:00"), "kind": "PnapMachine"}
    shown, _ = arguments(made, None, facts, OwningCluster(), removing=False, secrets=values)
    assert "--pnap-client-secret=$(SEALED_PNAP_CLIENT_SECRET)" in shown
    assert variables(facts, values) == {"SEALED_PNAP_CLIENT_SECRET": "s3cret"}
    run, _ = arguments(made, None, facts, OwningCluster(), removing=False, secrets=values, shown=False)
    assert "--pnap-client-secret=s3cret" in run


def test_no_other_argument_of_a_pod_names_a_variable() -> None:
    made = infra(tags="a,$(AWS_SECRET_ACCESS_KEY)", securityGroup=["$(AWS_SECRET_ACCESS_KEY)"])
    shown, _ = arguments(made, None, KEYED, OwningCluster(), removing=False)
    assert "--amazonec2-tags=a,$$(AWS_SECRET_ACCESS_KEY)" in shown
    assert "--amazonec2-security-group=$$(AWS_SECRET_ACCESS_KEY)" in shown
    run, _ = arguments(made, None, KEYED, OwningCluster(), removing=False, shown=False)
    assert "--amazonec2-tags=a,$(AWS_SECRET_ACCESS_KEY)" in run
