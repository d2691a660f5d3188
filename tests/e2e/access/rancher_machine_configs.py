"""Machine configs and credentials as Rancher's users have them, each with what is said to have no effect.

As in :mod:`.rancher_clusters` the fields are those of Rancher's examples, and the objects are our own.
"""

from __future__ import annotations

from .rancher_clusters import Written


def _config(kind: str, name: str, fields: str) -> str:
    head = f"apiVersion: rke-machine-config.cattle.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: fleet-default}}\n"
    return f"{head}{fields.strip()}\n"


MACHINE_CONFIGS = (
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
)
