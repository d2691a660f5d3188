"""Clusters, machine configs and credentials as Rancher's users have them, each with what is said to have no effect.

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


def _config(kind: str, name: str, fields: str) -> str:
    head = f"apiVersion: rke-machine-config.cattle.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: fleet-default}}\n"
    return f"{head}{fields.strip()}\n"


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

RANCHERS = (
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
        "config-amazon",
        _config(
            "Amazonec2Config",
            "t-amazon-pool",
            """
common:
  labels: {team: a}
  taints: {}
deviceName: /dev/sda1
encryptEbsVolume: false
instanceType: t3a.medium
region: us-west-2
zone: a
openPort:
- 8080
- 8443
retries: 5
rootSize: 16
spotPrice: 0.5
securityGroup:
- rancher-nodes
sshUser: ubuntu
volumeType: gp2
""",
        ),
        ("common",),
    ),
    Written(
        "config-amazon-typed",
        _config(
            "Amazonec2Config",
            "typed",
            "ami: ami-0123456789abcdef0\nregion: eu-west-1\ntype: rke-machine-config.cattle.io.amazonec2config",
        ),
        ("type",),
    ),
    Written(
        "config-amazon-spec",
        _config("Amazonec2Config", "spec", "spec:\n  instanceType: m6i.xlarge\n  rootSize: 50\n  iops: 3000\n  secretKey: hush"),
        ("spec",),
    ),
    Written(
        "config-vsphere",
        _config(
            "VmwarevsphereConfig",
            "t-vsphere-pool",
            """
common:
cfgparam: [disk.enableUUID=TRUE]
boot2dockerUrl: null
cloneFrom: /dc/vm/template
cloudConfig: ""
cloudinit: null
cpuCount: 4
creationType: template
datacenter: /dc
datastore: /dc/datastore/a
diskSize: 20000
folder: /dc/vm
memorySize: 8192
network: [/dc/network/a]
pool: /dc/host/a/Resources
sshPort: 22
sshUser: docker
vcenter: vcenter.example.com
vcenterPort: 443
""",
        ),
    ),
    Written(
        "config-azure",
        _config(
            "AzureConfig",
            "t-azure-pool",
            """
common: {labels: null, taints: []}
availabilitySet: docker-machine
diskSize: 30
faultDomainCount: 3
updateDomainCount: 5
image: canonical:UbuntuServer:18.04-LTS:latest
location: westus
managedDisks: false
noPublicIp: false
openPort: [6443/tcp, 2379/tcp]
size: Standard_D2_v2
storageType: Standard_LRS
usePrivateIp: false
""",
        ),
        ("common",),
    ),
    Written(
        "config-digitalocean",
        _config(
            "DigitaloceanConfig",
            "t-ocean-pool",
            """
common: {cloudCredentialSecretName: cattle-global-data:cc-ocean}
backups: false
image: ubuntu-20-04-x64
monitoring: false
region: nyc3
size: s-2vcpu-4gb
sshPort: 22
sshUser: root
tags: a,b
""",
        ),
        ("common",),
    ),
    Written(
        "credential-azure",
        """
apiVersion: v1
kind: Secret
metadata: {name: cc-azure, namespace: cattle-global-data, annotations: {field.cattle.io/name: azure}}
type: Opaque
stringData:
  azurecredentialConfig-clientId: a
  azurecredentialConfig-clientSecret: b
  azurecredentialConfig-subscriptionId: c
""",
    ),
    Written(
        "credential-vsphere",
        """
apiVersion: v1
kind: Secret
metadata: {name: cc-vsphere, namespace: cattle-global-data}
type: provisioning.cattle.io/cloud-credential
stringData:
  vmwarevspherecredentialConfig-username: a
  vmwarevspherecredentialConfig-password: b
  vmwarevspherecredentialConfig-vcenter: vcenter.example.com
""",
    ),
    Written(
        "credential-s3",
        """
apiVersion: v1
kind: Secret
metadata: {name: cc-s3, namespace: cattle-global-data}
type: Opaque
stringData:
  s3credentialConfig-accessKey: a
  s3credentialConfig-secretKey: b
  s3credentialConfig-defaultBucket: c
""",
    ),
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
        "config-digitalocean-page",
        """
apiVersion: rke-machine-config.cattle.io/v1
kind: DigitaloceanConfig
metadata:
  annotations: {field.cattle.io/creatorId: user-abcde, ownerBindingsCreated: "true"}
  creationTimestamp: "2024-01-06T10:47:28Z"
  generateName: nc-saved-pool1-
  name: nc-saved-pool1-abcde
  namespace: fleet-default
accessToken: ""
backups: false
image: ubuntu-22-04-x64
ipv6: false
monitoring: false
privateNetworking: false
region: sfo3
size: s-4vcpu-8gb
sshKeyContents: ""
sshKeyFingerprint: ""
sshPort: "22"
sshUser: root
tags: ""
userdata: ""
type: rke-machine-config.cattle.io.digitaloceanconfig
""",
        ("type",),
    ),
    Written(
        "credential-amazon",
        """
apiVersion: v1
kind: Secret
metadata:
  annotations: {field.cattle.io/name: mine, field.cattle.io/creatorId: user-abcde, provisioning.cattle.io/driver: aws}
  name: cc-amazon
  namespace: cattle-global-data
type: Opaque
data:
  amazonec2credentialConfig-accessKey: YQ==
  amazonec2credentialConfig-secretKey: Yg==
  amazonec2credentialConfig-defaultRegion: ZXUtd2VzdC0x
""",
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
