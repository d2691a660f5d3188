"""The second half of :mod:`.cases`: what is refused, and what just about passes."""

from __future__ import annotations

from .cases import CLUSTER, LONG, SKIP, Checking, Obj

_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NO_REF: Obj = {"infrastructureRef": None, "controlPlaneRef": None}
_ONE_OF = "spec: Forbidden: one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set"


def _pods(*blocks: str) -> Obj:
    return {"spec": {"clusterNetwork": {"pods": {"cidrBlocks": list(blocks)}}}}


_CLUSTER = (
    Checking("Cluster", "with both references", {}),
    Checking("Cluster", "with infrastructure alone", {"spec": {"controlPlaneRef": None}}),
    Checking("Cluster", "with a control plane alone", {"spec": {"infrastructureRef": None}}),
    Checking("Cluster", "with neither", {"spec": _NO_REF}, (_ONE_OF,)),
    Checking("Cluster", "without a spec", {"spec": None}, (_ONE_OF,)),
    Checking(
        "Cluster",
        "with a name that is not a label's value",
        {"metadata": {"name": LONG}},
        (f'metadata.name: Invalid value: "{LONG}": must be a valid label value must be no more than 63 bytes',),
    ),
    Checking("Cluster", "with other references than before", {"spec": {"infrastructureRef": {"name": "c2"}}}, (), {}),
    Checking(
        "Cluster",
        "whose infrastructure goes",
        {"spec": {"infrastructureRef": None}},
        ("spec.infrastructureRef: Forbidden: cannot be removed",),
        {},
    ),
    Checking(
        "Cluster",
        "whose references both go",
        {"spec": _NO_REF},
        (
            "spec.infrastructureRef: Forbidden: cannot be removed",
            _ONE_OF,
            "spec.controlPlaneRef: Forbidden: cannot be removed",
        ),
        {},
    ),
    Checking("Cluster", "that gets a control plane later", {}, (), {"spec": {"controlPlaneRef": None}}),
    Checking("Cluster", "with networks", _pods("10.42.0.0/16", "fd00::/8", "10.0.0.1/08", "::ffff:1.2.3.4/96")),
    Checking(
        "Cluster",
        "with what is no network",
        _pods("10.42.0.0", "10.42.0.0/33", "10.042.0.0/16", "fe80::1%eth0/64", "", "/8", "10.0.0.0/+8", "1.2.3/8"),
        tuple(
            f'spec.clusterNetwork.pods.cidrBlocks[{index}]: Invalid value: "{block}": invalid CIDR address: {block}'
            for index, block in enumerate(
                ("10.42.0.0", "10.42.0.0/33", "10.042.0.0/16", "fe80::1%eth0/64", "", "/8", "10.0.0.0/+8", "1.2.3/8")
            )
        ),
    ),
    Checking(
        "Cluster",
        "with bad networks of services",
        {"spec": {"clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/12", "x/8"]}}}},
        ('spec.clusterNetwork.services.cidrBlocks[1]: Invalid value: "x/8": invalid CIDR address: x/8',),
    ),
)

TOPOLOGY: Obj = {"spec": {"topology": {"classRef": {"name": "quick"}, "version": "v1.33.1"}}}


def _of_machines(kind: str, prefix: tuple[str, ...]) -> tuple[Checking, ...]:
    """Rules of a machine's spec, wherever it stands."""
    path = ".".join(prefix)

    def spec(change: Obj) -> Obj:
        for step in reversed(prefix):
            change = {step: change}
        return change

    def version(text: str, *errors: str) -> Checking:
        said = tuple(f'{path}.version: Invalid value: "{text}": {error}' for error in errors)
        return Checking(kind, f"with the version {text}", spec({"version": text}), said)

    def taint(key: str, *errors: str) -> Checking:
        change = spec({"taints": [{"key": key, "effect": "NoSchedule", "propagation": "Always"}]})
        said = tuple(f'{path}.taints[0].key: Invalid value: "{key}": {error}' for error in errors)
        return Checking(kind, f"with the taint {key}", change, said)

    not_semantic = "must be a valid semantic version"
    of_nodes = "taint key must not have the prefix node.kubernetes.io/, except for node.kubernetes.io/out-of-service"
    missing = (
        f"{path}.bootstrap: Required value: expected either {path}.bootstrap.dataSecretName or {path}.bootstrap.configRef "
        "to be populated"
    )
    config: Obj = {"configRef": {"apiGroup": "bootstrap.test.io", "kind": "TestConfig", "name": "one"}}
    return (
        Checking(kind, "that is whole", {}),
        Checking(kind, "with a bootstrap config", spec({"bootstrap": {"dataSecretName": None, **config}})),
        Checking(kind, "with an empty secret's name", spec({"bootstrap": {"dataSecretName": ""}})),
        Checking(kind, "without bootstrap data", spec({"bootstrap": {"dataSecretName": None}}), (missing,)),
        Checking(
            kind, "with an empty bootstrap config", spec({"bootstrap": {"dataSecretName": None, "configRef": {}}}), (missing,)
        ),
        version("v1.33.1+rke2r1"),
        version("v1.33.1-rc.0+a.b-c"),
        version("1.33.1", "must start with v"),
        version("v1.33", not_semantic),
        version("v1.033.1", not_semantic),
        version("v1.33.1-01", not_semantic),
        version("v1.33.1+", not_semantic),
        version("v1.33.99999999999999999999", not_semantic),
        version("latest", "must start with v", not_semantic),
        version("vv1.2.3", not_semantic),
        taint("dedicated"),
        taint("node.kubernetes.io/out-of-service"),
        taint("node.cluster.x-k8s.io/uninitialized", "taint key is not allowed"),
        taint("node.cluster.x-k8s.io/outdated-revision", "taint key is not allowed"),
        taint("node.kubernetes.io/not-ready", of_nodes),
        taint("node.cloudprovider.kubernetes.io/x", "taint key must not have the prefix node.cloudprovider.kubernetes.io/"),
        taint("node-role.kubernetes.io/master", "taint is deprecated since 1.24 and should not be used anymore"),
        taint("node-role.kubernetes.io/control-plane", "taint is not allowed for worker Machines"),
        taint("a b", _NAME_PART),
        taint("", "name part must be non-empty", _NAME_PART),
    )


_IMMUTABLE = ("spec.clusterName: Forbidden: field is immutable",)

_MACHINE = (
    *_of_machines("Machine", ("spec",)),
    Checking("Machine", "that moves to another cluster", {"spec": {"clusterName": "c2"}}, _IMMUTABLE, {}),
    Checking(
        "Machine",
        "of a pool, without bootstrap data",
        {"metadata": {"labels": {"cluster.x-k8s.io/pool-name": "p"}}, "spec": {"bootstrap": {"dataSecretName": None}}},
    ),
    Checking(
        "Machine",
        "owned by a pool, without bootstrap data",
        {
            "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "MachinePool", "name": "p", "uid": "1"}]},
            "spec": {"bootstrap": {"dataSecretName": None}},
        },
    ),
    Checking(
        "Machine",
        "of the control plane, with its taint",
        {
            "metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}},
            "spec": {
                "taints": [
                    {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule", "propagation": "OnInitialization"}
                ]
            },
        },
    ),
)

# --- sets and deployments of machines ----------------------------------------------------------------------------------------

_MISSING = "invalid template, {{ .random }} is missing"
_NO_NAME = f"invalid template, generated names would not be valid Kubernetes object names: {_SUBDOMAIN}"
_FILLING = "invalid template: rendering template: template: template name generator"
_AT = 'executing "template name generator" at'

NAMING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{{ .random }}", ()),
    ("{{ .machineSet.name }}-{{ .random }}", ()),
    ("{{ .cluster.name }}-{{ .machineSet.name }}-{{ .random }}" + "x" * 60, ()),
    ("a{{- .cluster.name -}} {{ .random }}", ()),
    ("{{/* short */}}{{ printf `%.3s` .cluster.name }}-{{ .random }}", ()),
    ("{{ slice .cluster.name 0 3 }}{{ .random }}", ()),
    ("{{ slice .machineSet.name 1 }}{{ .random }}", ()),
    ('{{ .cluster.name | printf "%s-%.3s" .random }}{{ .random }}', ()),
    ('{{ "a" | printf `%s%s%%` "b" | printf "%.2s" }}{{ .random }}', ()),
    ("fixed", (_MISSING,)),
    ("{{.random}}", (_MISSING,)),
    ("Upper-{{ .random }}", (_NO_NAME,)),
    ("{{ .random }}-", (_NO_NAME,)),
    ('{{ printf "%%%s" .random }}{{ .random }}', (_NO_NAME,)),
    ("{{ .random }}{{ .foo }}", (f'{_FILLING}:1:16: {_AT} <.foo>: map has no entry for key "foo"',)),
    ("{{ .random }}\n{{ .cluster.foo }}", (f'{_FILLING}:2:11: {_AT} <.cluster.foo>: map has no entry for key "foo"',)),
    (
        "{{ .random }}{{ .random.foo }}",
        (f"{_FILLING}:1:23: {_AT} <.random.foo>: can't evaluate field foo in type interface {{}}",),
    ),
    (
        "{{ .random }}{{ slice .random 3 9 }}",
        (f"{_FILLING}:1:16: {_AT} <slice .random 3 9>: error calling slice: index out of range: 9",),
    ),
    (
        "é{{ .random }}{{ slice .random 3 2 }}",
        (f"{_FILLING}:1:18: {_AT} <slice .random 3 2>: error calling slice: invalid slice index: 3 > 2",),
    ),
)


def _go(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _named(kind: str, template: str, problems: tuple[str, ...]) -> Checking:
    errors = tuple(f"spec.machineNaming.template: Invalid value: {_go(template)}: {why}" for why in problems)
    return Checking(kind, f"with names {template}", {"spec": {"machineNaming": {"template": template}}}, errors)


def _of_sets(kind: str, mismatch: str) -> tuple[Checking, ...]:
    """`mismatch` is how the kind begins to say that template and selector don't fit."""

    def selecting(*expressions: Obj) -> Obj:
        return {"spec": {"selector": {"matchLabels": None, "matchExpressions": list(expressions)}}}

    def refused(shown: str, why: str) -> tuple[str, ...]:
        return (f"spec.selector: Invalid value: {shown}: {why}",)

    known = "All ControlPlaneIsStable ControlPlaneVersionSkew KubeadmVersionSkew KubernetesVersionSkew"
    checks = f"skipped preflight check(s) must be among: [{known}]"
    differ = (
        'spec.clusterName: Invalid value: "c2": spec.clusterName and spec.template.spec.clusterName must be set to the same value'
    )
    return (
        *_of_machines(kind, ("spec", "template", "spec")),
        Checking(kind, "that moves to another cluster", {"spec": {"clusterName": "c2"}}, (*_IMMUTABLE, differ), {}),
        Checking(kind, "whose machines are another cluster's", {"spec": {"clusterName": "c2"}}, (differ,)),
        Checking(
            kind,
            "that selects by expressions, in order of their keys",
            {
                "spec": {
                    "selector": {
                        "matchLabels": None,
                        "matchExpressions": [
                            {"key": "z", "operator": "Exists"},
                            {"key": "tier", "operator": "In", "values": ["b", "a"]},
                            {"key": "old", "operator": "DoesNotExist"},
                            {"key": "env", "operator": "NotIn", "values": ["x"]},
                        ],
                    },
                    "template": {
                        "metadata": {
                            "labels": {
                                "cluster.x-k8s.io/set-name": None,
                                "cluster.x-k8s.io/deployment-name": None,
                                CLUSTER: None,
                                "tier": "c",
                            }
                        }
                    },
                }
            },
            (f'{mismatch.format(labels=_braced("tier", "c"))}must match spec.selector "env notin (x),!old,tier in (a,b),z"',),
        ),
        Checking(
            kind,
            "whose template has no labels",
            {
                "spec": {
                    "selector": {"matchLabels": None, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    "template": {"metadata": None},
                }
            },
            (f'{mismatch.format(labels="null")}must match spec.selector "a"',),
        ),
        Checking(
            kind,
            "with an operator nobody knows",
            selecting({"key": "a", "operator": "Like", "values": ["<b>"]}),
            refused(
                '{"matchExpressions":[{"key":"a","operator":"Like","values":["\\u003cb\\u003e"]}]}',
                '"Like" is not a valid label selector operator',
            ),
        ),
        Checking(
            kind,
            "with an expression that lists nothing",
            selecting({"key": "a", "operator": "In"}),
            refused(
                '{"matchExpressions":[{"key":"a","operator":"In"}]}',
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
        ),
        Checking(
            kind,
            "with an expression that lists too much",
            selecting({"key": "a b", "operator": "Exists", "values": ["x"]}),
            refused(
                '{"matchExpressions":[{"key":"a b","operator":"Exists","values":["x"]}]}',
                f'[key: Invalid value: "a b": {_NAME_PART}, values: Invalid value: ["x"]: values set must be empty for exists '
                "and does not exist]",
            ),
        ),
        Checking(
            kind,
            "with a bad value to select",
            {
                "spec": {
                    "selector": {
                        "matchLabels": {
                            "cluster.x-k8s.io/set-name": None,
                            "cluster.x-k8s.io/deployment-name": None,
                            CLUSTER: None,
                            "a": "b c",
                        }
                    }
                }
            },
            refused('{"matchLabels":{"a":"b c"}}', f'values[0][a]: Invalid value: "b c": {_LABEL_VALUE}'),
        ),
        Checking(kind, "that skips known checks", {"metadata": {"annotations": {SKIP: "All, KubeadmVersionSkew"}}}),
        Checking(
            kind,
            "that skips unknown checks",
            {"metadata": {"annotations": {SKIP: "All,Sleep,, Rest "}}},
            (f'metadata.annotations.{SKIP}: Invalid value: ["Sleep","","Rest"]: {checks}',),
        ),
        Checking(
            kind,
            "with a bad label in its template",
            {"spec": {"template": {"metadata": {"labels": {"a": "b c"}}}}},
            (f'spec.template.metadata.labels: Invalid value: "b c": {_LABEL_VALUE}',),
        ),
        Checking(
            kind,
            "with a bad annotation in its template",
            {"spec": {"template": {"metadata": {"annotations": {"a b": "anything goes"}}}}},
            (f'spec.template.metadata.annotations: Invalid value: "a b": {_NAME_PART}',),
        ),
        *(_named(kind, template, problems) for template, problems in NAMING),
    )


def _braced(key: str, value: str) -> str:
    return f'{{"{key}":"{value}"}}'


_BOTH_ZERO = 'spec.rollout.strategy.rollingUpdate: Invalid value: "0": maxUnavailable and maxSurge cannot both be 0'
_NUMBER = "must be either an int or a percentage: invalid value for IntOrString:"


def _rolling(surge: int | str, unavailable: int | str, *errors: str) -> Checking:
    change = {"spec": {"rollout": {"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}}
    return Checking("MachineDeployment", f"with {surge} more and {unavailable} missing", change, errors)


def _not_percent(path: str, text: str) -> str:
    return f'{path}: Invalid value: "{text}": {_NUMBER} invalid type: string is not a percentage'


def _not_number(path: str, text: str, why: str) -> str:
    parsing = f'invalid value "{text}": strconv.Atoi: parsing "{text.removesuffix("%")}": {why}'
    return f'{path}: Invalid value: "{text}": {_NUMBER} {parsing}'


_ROLLING = "spec.rollout.strategy.rollingUpdate"
_IN_FLIGHT = "spec.remediation.maxInFlight"

_DEPLOYMENT = (
    *_of_sets("MachineDeployment", "spec.template.metadata.labels: Forbidden: "),
    Checking(
        "MachineDeployment",
        "with a name that is not a label's value",
        {"metadata": {"name": LONG}},
        (f'metadata.name: Invalid value: "{LONG}": must be a valid label value: must be no more than 63 bytes',),
    ),
    _rolling(0, 1),
    _rolling("25%", "10%"),
    _rolling("0%", 0),
    _rolling("0%", "0%"),
    _rolling(-1, 1),
    _rolling(0, 0, _BOTH_ZERO),
    _rolling("1", 0, _not_percent(f"{_ROLLING}.maxSurge", "1")),
    _rolling(
        "a%", "b", _not_percent(f"{_ROLLING}.maxUnavailable", "b"), _not_number(f"{_ROLLING}.maxSurge", "a%", "invalid syntax")
    ),
    _rolling("%", 0, _not_number(f"{_ROLLING}.maxSurge", "%", "invalid syntax")),
    _rolling("99999999999999999999%", 0, _not_number(f"{_ROLLING}.maxSurge", "99999999999999999999%", "value out of range")),
    Checking("MachineDeployment", "that mends a fifth at once", {"spec": {"remediation": {"maxInFlight": "20%"}}}),
    Checking(
        "MachineDeployment",
        "that mends some at once",
        {"spec": {"remediation": {"maxInFlight": "some"}}},
        (_not_percent(_IN_FLIGHT, "some"),),
    ),
)

_SET = (
    *_of_sets("MachineSet", "spec.template.metadata.labels: Invalid value: {labels}: "),
    Checking("MachineSet", "with a long name", {"metadata": {"name": LONG}}),
)

# --- health checks and drain rules -------------------------------------------------------------------------------------------

_LIMIT = "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"


def _startup(seconds: int, *errors: str) -> Checking:
    change = {"spec": {"checks": {"nodeStartupTimeoutSeconds": seconds}}}
    return Checking("MachineHealthCheck", f"that gives a node {seconds} seconds", change, errors)


_HEALTH = (
    Checking("MachineHealthCheck", "that is whole", {}),
    Checking("MachineHealthCheck", "that moves to another cluster", {"spec": {"clusterName": "c2"}}, _IMMUTABLE, {}),
    Checking(
        "MachineHealthCheck",
        "that selects everything",
        {"spec": {"selector": {"matchLabels": None}}},
        ("spec.selector: Required value: selector must not be empty",),
    ),
    Checking(
        "MachineHealthCheck",
        "that selects in its own cluster",
        {"spec": {"selector": {"matchLabels": {CLUSTER: "c1"}}}},
    ),
    Checking(
        "MachineHealthCheck",
        "that selects in another cluster",
        {"spec": {"selector": {"matchLabels": {CLUSTER: "c2"}}}},
        (
            f'spec.selector: Invalid value: {{"matchLabels":{{"{CLUSTER}":"c2","role":"worker"}}}}: cannot specify a cluster '
            "selector other than the one specified by ClusterName",
        ),
    ),
    Checking(
        "MachineHealthCheck",
        "with a bad selector",
        {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}},
        (
            'spec.selector: Invalid value: {"matchLabels":{"role":"worker"},"matchExpressions":[{"key":"a","operator":"in"}]}: '
            '"in" is not a valid label selector operator',
        ),
    ),
    _startup(0),
    _startup(30),
    _startup(29, "spec.checks.nodeStartupTimeoutSeconds: Invalid value: 29: must be at least 30s"),
    _startup(-1, "spec.checks.nodeStartupTimeoutSeconds: Invalid value: -1: must be at least 30s"),
    Checking("MachineHealthCheck", "with a limit", {"spec": {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 3}}}}),
    Checking(
        "MachineHealthCheck", "with a share", {"spec": {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}}}}
    ),
    Checking(
        "MachineHealthCheck",
        "with a limit that is none",
        {"spec": {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "few"}}}},
        (_not_percent(_LIMIT, "few"),),
    ),
)

_BAD_SELECTOR: Obj = {"matchExpressions": [{"key": "a", "operator": "In"}]}
_GOOD_SELECTOR: Obj = {"matchLabels": {"a": "b"}}


def _bad_selector(path: str) -> str:
    shown = '{"matchExpressions":[{"key":"a","operator":"In"}]}'
    return f"{path}: Invalid value: {shown}: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"


def _draining(behavior: str, order: int | None, *errors: str) -> Checking:
    title = f"that says {behavior}" + ("" if order is None else " in some order")
    return Checking("MachineDrainRule", title, {"spec": {"drain": {"behavior": behavior, "order": order}}}, errors)


def _ordered(order: int) -> str:
    return f'spec.drain.order: Invalid value: {order}: order must not be set if drain behavior is "Skip" or "WaitCompleted"'


_DRAIN = (
    _draining("Drain", 5),
    _draining("Drain", None),
    _draining("Skip", None),
    _draining("Skip", 0, _ordered(0)),
    _draining("WaitCompleted", None),
    _draining("WaitCompleted", -3, _ordered(-3)),
    Checking(
        "MachineDrainRule",
        "with selectors",
        {
            "spec": {
                "machines": [{"selector": _GOOD_SELECTOR}, {"clusterSelector": {}}],
                "pods": [{"selector": _GOOD_SELECTOR, "namespaceSelector": _GOOD_SELECTOR}],
            }
        },
    ),
    Checking(
        "MachineDrainRule",
        "with bad selectors",
        {
            "spec": {
                "machines": [{"selector": _GOOD_SELECTOR}, {"selector": _BAD_SELECTOR, "clusterSelector": _BAD_SELECTOR}],
                "pods": [{"namespaceSelector": _BAD_SELECTOR}, {"selector": _BAD_SELECTOR}],
            }
        },
        (
            _bad_selector("spec.machines[1].selector"),
            _bad_selector("spec.machines[1].clusterSelector"),
            _bad_selector("spec.pods[0].namespaceSelector"),
            _bad_selector("spec.pods[1].selector"),
        ),
    ),
)

CHECKING: tuple[Checking, ...] = (*_CLUSTER, *_MACHINE, *_SET, *_DEPLOYMENT, *_HEALTH, *_DRAIN)
