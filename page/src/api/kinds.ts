// The kinds that the page knows, with the part of each that it reads.
import type { Resource } from './steve'

export const CLUSTER = 'provisioning.cattle.io.cluster'
export const MANAGED = 'management.cattle.io.cluster'
export const CAPI_CLUSTER = 'cluster.x-k8s.io.cluster'
export const MACHINE = 'cluster.x-k8s.io.machine'
export const MACHINE_DEPLOYMENT = 'cluster.x-k8s.io.machinedeployment'
export const MACHINE_SET = 'cluster.x-k8s.io.machineset'
export const CONTROL_PLANE = 'rke.cattle.io.rkecontrolplane'
export const SNAPSHOT = 'rke.cattle.io.etcdsnapshot'
export const MEMBER = 'management.cattle.io.clusterroletemplatebinding'
export const EVENT = 'event'

export interface MachinePool {
  name: string
  quantity?: number
  machineConfigRef?: { kind?: string; name?: string }
}

/** The cluster as users declare it. */
export type Cluster = Resource<
  {
    kubernetesVersion?: string
    rkeConfig?: { machinePools?: MachinePool[]; etcdSnapshotCreate?: { generation?: number } }
  },
  { clusterName?: string; ready?: boolean; agentDeployed?: boolean }
>

/** The same cluster as the server manages it; its name is the cluster's id. */
export type Managed = Resource<
  { displayName?: string; fleetWorkspaceName?: string; internal?: boolean },
  { version?: { gitVersion?: string }; nodeCount?: number; provider?: string; driver?: string }
>

interface Counts {
  desiredReplicas?: number
  replicas?: number
  readyReplicas?: number
  availableReplicas?: number
  upToDateReplicas?: number
}

/** Cluster API's cluster: the server counts machines in it. */
export type CapiCluster = Resource<unknown, { phase?: string; controlPlane?: Counts; workers?: Counts }>

export type Machine = Resource<
  { clusterName?: string; version?: string; infrastructureRef?: { kind?: string; name?: string } },
  {
    phase?: string
    nodeRef?: { name?: string }
    nodeInfo?: { kubeletVersion?: string; osImage?: string; architecture?: string }
    addresses?: { type: string; address: string }[]
  }
>

export type MachineDeployment = Resource<
  { clusterName?: string; replicas?: number },
  { replicas?: number; readyReplicas?: number; availableReplicas?: number; upToDateReplicas?: number }
>

/** The plans of a cluster's machines come from it; operations on the whole cluster are reported in it. */
export type ControlPlane = Resource<
  unknown,
  { etcdSnapshotCreate?: { generation?: number }; etcdSnapshotCreatePhase?: string; etcdSnapshotRestorePhase?: string }
>

/** A role of a user or group in a cluster. */
export interface Member extends Resource {
  userName?: string
  userPrincipalName?: string
  groupName?: string
  groupPrincipalName?: string
  roleTemplateName?: string
}

/** Kubernetes' event; `type` is the type of the resource, so the event's own is `_type`. */
export interface Event extends Resource {
  _type?: string
  reason?: string
  message?: string
  count?: number
  lastTimestamp?: string
  eventTime?: string
  firstTimestamp?: string
  series?: { count?: number; lastObservedTime?: string }
  involvedObject?: { kind?: string; name?: string; namespace?: string; uid?: string }
  source?: { component?: string }
  reportingComponent?: string
}

export const CLUSTER_NAME_LABEL = 'cluster.x-k8s.io/cluster-name'
/** The set that a machine belongs to deletes it first when it has one too many. */
export const DELETE_FIRST = 'cluster.x-k8s.io/delete-machine'
export const POOL_LABEL = 'rke.cattle.io/rke-machine-pool-name'

const ROLES: [string, string][] = [
  ['rke.cattle.io/etcd-role', 'etcd'],
  ['rke.cattle.io/control-plane-role', 'control plane'],
  ['rke.cattle.io/worker-role', 'worker']
]

export function rolesOf(machine: Machine): string[] {
  const labels = machine.metadata.labels ?? {}
  return ROLES.filter(([label]) => labels[label] === 'true').map(([, role]) => role)
}

export function addressOf(machine: Machine, kind: 'InternalIP' | 'ExternalIP'): string {
  return machine.status?.addresses?.find((each) => each.type === kind)?.address ?? ''
}
