"""Clusters as Rancher's users have them, each with what is said to have no effect; :mod:`.rancher_machine_configs` has the rest.

The fields are those of Rancher's examples, of its documentation and pages, and of charts that people publish, from 2.6 on; the
objects are our own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """`unused` are the fields that the server warns of."""

    name: str
    text: str
    unused: tuple[str, ...] = ()


def _cluster(name: str, spec: str) -> str:
    head = f"apiVersion: provisioning.cattle.io/v1\nkind: Cluster\nmetadata: {{name: {name}, namespace: fleet-default}}\nspec:\n"
    return head + "".join(f"  {line}\n" for line in spec.strip().splitlines())


def _template(name: str, kind: str, more: str = "") -> str:
    """A cluster of Rancher's first templates."""
    return _cluster(
        name,
        f"""
cloudCredentialSecretName: cattle-global-data:cc-mine
kubernetesVersion: v1.34.1+rke2r1
enableNetworkPolicy: false
rkeConfig:
  machinePools:
    - controlPlaneRole: true
      etcdRole: true
      workerRole: true
      quantity: 1
      name: {name}-pool
      machineConfigRef: {{kind: {kind}, name: {name}-pool}}
      paused: true
      displayName: {name}
      rollingUpdate: {{maxUnavailable: 0, maxSurge: 1}}
      machineDeploymentLabels: {{team: a}}
      machineDeploymentAnnotations: {{team: a}}
  controlPlaneConfig:
    cni: calico
  upgradeStrategy:
    controlPlaneDrainOptions: {{enabled: false}}
    workerDrainOptions: {{enabled: false}}
    workerConcurrency: "10%"
    controlPlaneConcurrency: "10%"
{more}
""",
    )


_OF_TEMPLATES = ("spec.rkeConfig.controlPlaneConfig", "spec.rkeConfig.machinePools[0].displayName")

CLUSTERS = (
    Written("template-amazon", _template("t-amazon", "Amazonec2Config"), _OF_TEMPLATES),
    Written("template-azure", _template("t-azure", "AzureConfig"), _OF_TEMPLATES),
    Written("template-digitalocean", _template("t-ocean", "DigitaloceanConfig"), _OF_TEMPLATES),
    Written(
        "template-vsphere",
        _template(
            "t-vsphere",
            "VmwarevsphereConfig",
            "  localClusterAuthEndpoint: {enabled: true, fqdn: a.example.com, caCerts: ''}\n"
            "  workerConfig:\n    - config: {node-name: n1}",
        ),
        (*_OF_TEMPLATES, "spec.rkeConfig.localClusterAuthEndpoint", "spec.rkeConfig.workerConfig"),
    ),
    Written(
        "template-custom",
        _cluster(
            "t-custom",
            """
kubernetesVersion: v1.34.1+rke2r1
enableNetworkPolicy: true
rancherValues: {a: b}
rkeConfig:
  controlPlaneConfig: {cni: calico, profile: cis-1.6}
agentEnvVars: [{name: A, value: b}]
""",
        ),
        ("spec.enableNetworkPolicy", "spec.rancherValues", "spec.rkeConfig.controlPlaneConfig"),
    ),
    Written(
        "hardened-2.6",
        _cluster(
            "hardened-26",
            """
defaultPodSecurityPolicyTemplateName: restricted
kubernetesVersion: v1.34.1+rke2r1
localClusterAuthEndpoint: {caCerts: '', enabled: false, fqdn: ''}
rkeConfig:
  chartValues: {rke2-canal: {}}
  etcd:
    disableSnapshots: false
    s3:
    snapshotRetention: 5
    snapshotScheduleCron: 0 */5 * * *
  machineGlobalConfig: {cni: canal}
  machinePools:
  machineSelectorConfig:
    - config: {profile: cis, protect-kernel-defaults: true}
  registries: {configs: {}, mirrors: {}}
  upgradeStrategy:
    controlPlaneConcurrency: 10%
    controlPlaneDrainOptions:
      deleteEmptyDirData: true
      disableEviction: false
      enabled: false
      force: false
      gracePeriod: -1
      ignoreDaemonSets: true
      ignoreErrors: true
      skipWaitForDeleteTimeoutSeconds: 0
      timeout: 120
    workerConcurrency: 10%
""",
        ),
        (
            "spec.defaultPodSecurityPolicyTemplateName",
            "spec.rkeConfig.upgradeStrategy.controlPlaneDrainOptions.ignoreErrors",
            "spec.rkeConfig.upgradeStrategy.controlPlaneDrainOptions.timeout",
        ),
    ),
    Written(
        "hardened-k3s",
        _cluster(
            "hardened-k3s",
            """
defaultPodSecurityPolicyTemplateName: ''
enableNetworkPolicy: true
kubernetesVersion: v1.34.1+k3s1
rkeConfig:
  machineGlobalConfig:
    kube-apiserver-arg:
      - audit-log-maxage=30
      - request-timeout=300s
    secrets-encryption: true
  machineSelectorConfig:
    - config:
        kubelet-arg: [make-iptables-util-chains=true]
        protect-kernel-defaults: true
""",
        ),
        ("spec.enableNetworkPolicy",),
    ),
    Written(
        "page-2.6",
        _cluster(
            "page-26",
            """
cloudCredentialSecretName: cattle-global-data:cc-abcde
defaultPodSecurityAdmissionConfigurationTemplateName: ''
defaultPodSecurityPolicyTemplateName: ''
defaultClusterRoleForProjectMembers: user
kubernetesVersion: v1.34.1+rke2r1
fleetAgentDeploymentCustomization: {overrideResourceRequirements: null}
rkeConfig:
  machinePools:
    - name: pool1
      etcdRole: true
      controlPlaneRole: true
      workerRole: true
      hostnamePrefix: abc
      labels: {}
      quantity: 1
      unhealthyNodeTimeout: 0m
      drainBeforeDelete: true
      machineOS: linux
      machineConfigRef: {kind: DigitaloceanConfig, name: nc-page-26-pool1-abcde}
""",
        ),
        ("spec.defaultClusterRoleForProjectMembers", "spec.rkeConfig.machinePools[0].hostnamePrefix"),
    ),
    Written(
        "autoscaled",
        _cluster(
            "autoscaled",
            """
kubernetesVersion: v1.34.1+rke2r1
rkeConfig:
  machinePools:
    - name: all
      etcdRole: true
      controlPlaneRole: true
      workerRole: true
      quantity: 3
      autoscalingMinSize: 3
      autoscalingMaxSize: 10
      nodeStartupTimeout: 600s
      maxUnhealthy: 100%
      taints: [{key: gpu, value: present, effect: NoSchedule}]
      machineConfigRef: {kind: VmwarevsphereConfig, name: worker-vm, apiVersion: rke-machine-config.cattle.io/v1}
""",
        ),
    ),
    Written(
        "registries",
        _cluster(
            "registries",
            """
kubernetesVersion: v1.34.1+rke2r1
rkeConfig:
  machineGlobalConfig: {cni: calico, disable-kube-proxy: false, etcd-expose-metrics: false, profile: null}
  registries:
    configs:
      registry.example.com: {authConfigSecretName: registry-auth, caBundle: null, insecureSkipVerify: false, tlsSecretName: null}
    mirrors:
      docker.io: {endpoint: [https://registry.example.com], rewrite: {'(.*)': 'hub/$1'}}
""",
        ),
    ),
    Written(
        "cloud-provider",
        _cluster(
            "cloud-provider",
            """
kubernetesVersion: v1.34.1+rke2r1
rkeConfig:
  machineSelectorConfig:
    - config:
        cloud-provider-config: secret://fleet-default:harvesterconfig
        cloud-provider-name: harvester
        protect-kernel-defaults: false
      machineLabelSelector: {matchLabels: {role: worker}}
  dataDirectories: {}
  networking: {stackPreference: dual}
""",
        ),
    ),
    Written("imported", _cluster("imported", "{}").replace("spec:\n  {}", "spec: {}")),
    Written(
        "saved",
        # As `kubectl get -o yaml` and the page's download give it, without what only one server has.
        """
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  annotations: {field.cattle.io/creatorId: user-abcde, field.cattle.io/description: production}
  creationTimestamp: "2024-01-06T10:47:28Z"
  finalizers: [wrangler.cattle.io/provisioning-cluster-remove, wrangler.cattle.io/rke-cluster-remove]
  generation: 2
  labels: {env: production}
  name: saved
  namespace: fleet-default
spec:
  kubernetesVersion: v1.34.1+k3s1
  localClusterAuthEndpoint: {}
  rkeConfig:
    chartValues: null
    dataDirectories: {}
    etcd: {disableSnapshots: false, snapshotRetention: 5, snapshotScheduleCron: 0 */5 * * *}
    machineGlobalConfig:
      disable-apiserver: false
      disable-cloud-controller: false
      disable-controller-manager: false
      disable-etcd: false
      disable-kube-proxy: false
      disable-network-policy: false
      disable-scheduler: false
      etcd-expose-metrics: false
    machinePoolDefaults: {}
    machinePools:
      - controlPlaneRole: true
        drainBeforeDelete: true
        dynamicSchemaSpec: '{"resourceFields": {"size": {"type": "string"}}}'
        etcdRole: true
        machineConfigRef: {kind: DigitaloceanConfig, name: nc-saved-pool1-abcde}
        machineOS: linux
        name: pool1
        quantity: 1
        unhealthyNodeTimeout: 0s
        workerRole: true
    machineSelectorConfig: [{config: {docker: false, protect-kernel-defaults: false, selinux: false}}]
    registries: {configs: {registry.example.com: {authConfigSecretName: registryconfig-auth-abcde}}}
    upgradeStrategy:
      controlPlaneConcurrency: "1"
      controlPlaneDrainOptions:
        deleteEmptyDirData: true
        disableEviction: false
        enabled: false
        force: false
        gracePeriod: -1
        ignoreDaemonSets: true
        ignoreErrors: false
        postDrainHooks: null
        preDrainHooks: null
        skipWaitForDeleteTimeoutSeconds: 0
        timeout: 120
      workerConcurrency: "1"
      workerDrainOptions: {enabled: true, timeout: 120}
status:
  agentDeployed: true
  clientSecretName: saved-kubeconfig
  clusterName: c-m-abcdefgh
  conditions: [{lastUpdateTime: "2024-01-06T10:47:28Z", status: "True", type: Ready}]
  observedGeneration: 2
  ready: true
""",
        (
            "spec.rkeConfig.upgradeStrategy.controlPlaneDrainOptions.timeout",
            "spec.rkeConfig.upgradeStrategy.workerDrainOptions.timeout",
        ),
    ),
    Written(
        "inventory",
        # Machines of a provider that is not there yet.
        _cluster(
            "inventory",
            """
kubernetesVersion: v1.34.1+k3s1
rkeConfig:
  machineGlobalConfig: {disable: [servicelb]}
  machinePools:
    - name: hub
      quantity: 1
      etcdRole: true
      controlPlaneRole: true
      workerRole: true
      machineConfigRef: {apiVersion: elemental.cattle.io/v1beta1, kind: MachineInventorySelectorTemplate, name: hub}
""",
        ),
    ),
    Written(
        "custom-reserved",
        _cluster(
            "custom-reserved",
            """
kubernetesVersion: v1.34.1+rke2r1
rkeConfig:
  machineGlobalConfig:
    cni: calico
    tls-san: [kubernetes.example.com]
    kube-apiserver-arg:
      - audit-log-path=/var/log/kube-audit/audit.log
      - audit-log-maxage=30
      - audit-log-maxbackup=10
      - audit-log-maxsize=100
  machineSelectorConfig:
    - config:
        kubelet-arg:
          - system-reserved=cpu=500m,memory=1Gi
          - kube-reserved=cpu=500m,memory=1Gi
          - max-pods=110
      machineLabelSelector: {matchLabels: {node-role: worker}}
  machineSelectorFiles:
    - fileSources: [{secret: {name: audit, items: [{key: policy, path: /etc/rancher/rke2/audit.yaml, permissions: "0600"}]}}]
      machineLabelSelector: {matchLabels: {rke.cattle.io/control-plane-role: "true"}}
""",
        ),
    ),
    Written(
        "driver-not-active",
        _cluster(
            "not-active",
            """
kubernetesVersion: v1.34.1+rke2r1
rkeConfig:
  machinePools:
    - name: pool1
      etcdRole: true
      controlPlaneRole: true
      workerRole: true
      quantity: 1
      machineConfigRef: {kind: OpenstackConfig, name: nc-openstack}
""",
        ),
    ),
)
