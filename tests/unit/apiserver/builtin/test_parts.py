"""Parts of the built-in kinds that no single write shows: allocation, conversion, schedules, subresources."""

from __future__ import annotations

import pytest

from remuda.apiserver.builtin import admissionregistration, checks, registration, resource_quantities, reviews
from remuda.apiserver.builtin.batch.cronjob import schedule_problem
from remuda.apiserver.builtin.core import event, namespace, node, service_addresses
from remuda.apiserver.builtin.pods import pod
from remuda.apiserver.builtin.pods.defaults import pull_policy
from remuda.apiserver.registry import object_meta
from remuda.kube.duration import human_age, human_duration
from remuda.kube.errors import ApiError
from remuda.kube.pod_resources import qos_class

from .cases import Obj


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (691200, "8d"),
        (63072000, "2y"),
        (63158400, "2y1d"),
        (252288000, "8y"),
    ],
)
def test_durations_are_said_as_kubectl_says_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_an_age_without_a_time_is_unknown() -> None:
    assert human_age(None, 0) == human_age("nonsense", 0) == "<unknown>"
    assert human_age("1970-01-01T00:00:00Z", 65) == "65s"


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 1-3 * jan,feb sun", ""),
        ("@every 1h30m", ""),
        ("@daily", ""),
        ("@never", "unrecognized descriptor: @never"),
        ("1 2 3", "expected exactly 5 fields, found 3: [1 2 3]"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
    ],
)
def test_a_schedule_is_cron_or_the_reason_is_given(schedule: str, problem: str) -> None:
    assert schedule_problem(schedule) == problem


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("localhost:5000/a/b", "Always"),
        ("localhost:5000/a/b:c", "IfNotPresent"),
        ("a@sha256:" + "0" * 64, "IfNotPresent"),
        ("UPPER", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_only_the_latest_image_is_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def _with(**resources: Obj) -> Obj:
    return {"containers": [{"resources": resources}]}


def test_quality_of_service_follows_from_requests_and_limits() -> None:
    both = {"cpu": "1", "memory": "1Gi"}
    assert qos_class(_with()) == "BestEffort"
    assert qos_class(_with(requests=both)) == "Burstable"
    assert qos_class(_with(requests=both, limits=both)) == "Guaranteed"
    assert qos_class(_with(requests={**both, "cpu": "500m"}, limits=both)) == "Burstable"


def test_events_survive_the_way_between_their_two_groups() -> None:
    old = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod"}, "message": "m", "reportingComponent": "c"}
    new = event.from_core(old)
    assert new["regarding"] == {"kind": "Pod"} and new["note"] == "m" and new["reportingController"] == "c"
    assert new["apiVersion"] == "events.k8s.io/v1"
    assert event.to_core(new) == old


def _service(**spec: object) -> Obj:
    return {"metadata": {"name": "s", "uid": "u"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}], **spec}}


def in_use(services: list[Obj]) -> service_addresses.InUse:
    addresses = {address for each in services for address in each["spec"].get("clusterIPs", ())}
    ports = {port["nodePort"] for each in services for port in each["spec"]["ports"] if "nodePort" in port}
    return service_addresses.InUse(addresses, ports)


def test_a_service_gets_a_free_address_of_the_range() -> None:
    first, second = _service(), _service()
    service_addresses.allocate(first, None, in_use([]))
    service_addresses.allocate(second, None, in_use([first]))
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]
    assert first["spec"]["clusterIPs"] == [first["spec"]["clusterIP"]]
    assert first["spec"]["ipFamilies"] == ["IPv4"] and first["spec"]["ipFamilyPolicy"] == "SingleStack"
    assert first["spec"]["clusterIP"].startswith(("10.96.", "10.97.", "10.98.", "10.99.", "10.10", "10.11"))


def test_an_address_is_given_once() -> None:
    taken = _service(clusterIP="10.96.0.9")
    service_addresses.allocate(taken, None, in_use([]))
    with pytest.raises(ApiError, match="provided IP is already allocated"):
        service_addresses.allocate(_service(clusterIP="10.96.0.9"), None, in_use([taken]))


def test_node_ports_are_given_kept_and_checked() -> None:
    obj = _service(type="NodePort", ports=[{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}])
    service_addresses.allocate(obj, None, in_use([]))
    ports = [port["nodePort"] for port in obj["spec"]["ports"]]
    assert ports[0] == ports[1] and ports[0] in service_addresses.NODE_PORTS
    again = _service(type="NodePort", ports=[{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}])
    service_addresses.allocate(again, obj, in_use([]))
    assert [port["nodePort"] for port in again["spec"]["ports"]] == ports
    with pytest.raises(ApiError, match=r"not in the valid range\. The range of valid ports is 30000-32767"):
        wrong = _service(type="NodePort", ports=[{"port": 80, "nodePort": 80}])
        service_addresses.allocate(wrong, None, in_use([]))


def test_finalizing_a_namespace_checks_each_name() -> None:
    old = {
        "metadata": {"name": "a", "resourceVersion": "1"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    }
    new = {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"finalizers": ["bad"]}}
    namespace.prepare_for_finalize(new, old)
    assert new["status"] == old["status"]
    assert [str(error) for error in namespace.validate_finalize(new, old)] == [
        'spec.finalizers[0]: Invalid value: "bad": name is neither a standard finalizer name nor is it fully qualified'
    ]


def test_a_pod_that_nothing_runs_is_deleted_at_once() -> None:
    spec = {"terminationGracePeriodSeconds": 20}
    assert pod.deletion_grace_seconds({"spec": spec}, None) == 0
    assert pod.deletion_grace_seconds({"spec": {**spec, "nodeName": "n"}}, None) == 20
    assert pod.deletion_grace_seconds({"spec": {**spec, "nodeName": "n"}}, 5) == 5
    assert pod.deletion_grace_seconds({"spec": {**spec, "nodeName": "n"}, "status": {"phase": "Failed"}}, None) == 0


def test_finalizers_can_not_be_added_to_what_is_going_away() -> None:
    old = {"name": "a", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    new = {**old, "finalizers": ["a/b", "c/d"]}
    assert [str(error) for error in object_meta.validate_object_meta_update(new, old)] == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"c/d"}'
    ]


def test_what_identifies_an_object_never_changes() -> None:
    old = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    new = {"name": "b", "namespace": "m", "uid": "v", "creationTimestamp": None, "generation": -1}
    fields = [error.field for error in object_meta.validate_object_meta_update(new, old)]
    expected = ("resourceVersion", "generation", "name", "namespace", "uid", "creationTimestamp")
    assert fields == [f"metadata.{field}" for field in expected]


def test_managed_fields_and_namespaces_are_checked() -> None:
    meta = {"name": "a", "namespace": "n", "managedFields": [{"operation": "X", "fieldsType": "Y", "manager": "\x07"}]}
    fields = [error.field for error in object_meta.validate_object_meta(meta, False, object_meta.subdomain_name)]
    at = "metadata.managedFields[0]"
    assert fields == ["metadata.namespace", f"{at}.operation", f"{at}.fieldsType", f"{at}.manager"]


def test_match_conditions_are_compiled_by_the_given_compiler() -> None:
    _, validating = admissionregistration.webhook_strategies(lambda expression: [f"no {expression}"])
    hook = {"name": "a.b.c", "matchConditions": [{"name": "x", "expression": "1"}]}
    found = [str(error) for error in validating.validate({"metadata": {"name": "a"}, "webhooks": [hook]})]
    assert 'webhooks[0].matchConditions[0].expression: Invalid value: "1": no 1' in found


def test_reviews_ask_about_one_thing() -> None:
    found = [error.field for error in reviews.SUBJECT_ACCESS.validate({"metadata": {"name": "x"}, "spec": {}})]
    assert found == ["spec.resourceAttributes", "spec.user", "metadata"]


def test_taints_may_not_repeat() -> None:
    assert len(node.taint_errors([{"key": "a", "effect": "NoExecute"}] * 2, "t")) == 1


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ({"a": []}, {}, True),
        ({"a": None}, {}, True),
        ({"a": {}}, {}, True),
        ({"a": 0}, {}, False),
        ({"a": [{"b": []}]}, {"a": [{}]}, True),
        ([1], [1, 2], False),
    ],
)
def test_an_absent_list_or_map_is_an_empty_one(left: object, right: object, equal: bool) -> None:
    assert checks.same(left, right) is equal


def test_quantities_are_compared_and_rounded() -> None:
    assert resource_quantities.amount("1Gi") > resource_quantities.amount("1G")
    assert resource_quantities.whole("100m") == 1
    assert resource_quantities.fractional("100m") and not resource_quantities.fractional("2")


def test_every_strategy_is_found_by_its_name() -> None:
    assert registration.strategy_for("", "v1", "Pod").default_grace_seconds == 30
    assert registration.strategy_for("", "v1", "Event").ttl == 3600
    assert "spec.nodeName" in registration.strategy_for("", "v1", "Pod").field_names
