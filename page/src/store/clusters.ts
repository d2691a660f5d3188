// Clusters as rows: the cluster that a user declared and the one that the server manages are one.
//
// Health is the state of the managed cluster (can it be used), operation that of the declared one (is it being changed). Both
// are computed by the server.
import { computed, type ComputedRef } from 'vue'
import { CAPI_CLUSTER, CLUSTER, MANAGED, type CapiCluster, type Cluster, type Managed } from '@/api/kinds'
import type { State } from '@/api/steve'
import { useResources, type LiveList } from './resources'

export interface ClusterRow {
  /** NAMESPACE/NAME of the declared cluster, or the id of one that has no declaration this user may see. */
  key: string
  namespace: string
  name: string
  /** The id: the name of the managed cluster. */
  identifier: string
  health: State | undefined
  operation: State | undefined
  version: string
  machines: { ready: number; wanted: number } | undefined
  created: number
  declared: Cluster | undefined
  managed: Managed | undefined
}

export interface Clusters {
  rows: ComputedRef<readonly ClusterRow[]>
  /** In the order of importance: without the first there are no rows, the others add to them. */
  lists: readonly LiveList<Cluster | Managed | CapiCluster>[]
}

export function useClusters(): Clusters {
  const declared = useResources<Cluster>({ type: CLUSTER })
  const managed = useResources<Managed>({ type: MANAGED })
  const capi = useResources<CapiCluster>({ type: CAPI_CLUSTER })
  const rows = computed(() => {
    const origins = new Map(managed.items.map((each) => [originOf(each), each]))
    const found = declared.items.map((each) =>
      rowOf(each, managed.get(each.status?.clusterName ?? '') ?? origins.get(each.id), capi.get(each.id))
    )
    const seen = new Set(found.map((each) => each.identifier))
    for (const each of managed.items) if (!seen.has(each.id)) found.push(rowOf(undefined, each, undefined))
    return found
  })
  return { rows, lists: [declared, managed, capi] }
}

/** The declared cluster that a managed one was made from; the other direction is known a moment later. */
function originOf(managed: Managed): string {
  return managed.metadata.relationships?.find((each) => each.fromType === CLUSTER)?.fromId ?? ''
}

export function rowOf(declared: Cluster | undefined, managed: Managed | undefined, capi: CapiCluster | undefined): ClusterRow {
  const metadata = declared?.metadata ?? managed?.metadata
  return {
    key: declared?.id ?? managed?.id ?? '',
    namespace: declared?.metadata.namespace ?? managed?.spec?.fleetWorkspaceName ?? '',
    name: declared?.metadata.name ?? managed?.spec?.displayName ?? managed?.id ?? '',
    identifier: declared?.status?.clusterName ?? managed?.id ?? '',
    health: managed?.metadata.state,
    operation: declared?.metadata.state,
    version: declared?.spec?.kubernetesVersion ?? managed?.status?.version?.gitVersion ?? '',
    machines: machinesOf(managed, capi),
    created: Date.parse(metadata?.creationTimestamp ?? '') || 0,
    declared,
    managed
  }
}

function machinesOf(managed: Managed | undefined, capi: CapiCluster | undefined): ClusterRow['machines'] {
  const parts = [capi?.status?.controlPlane, capi?.status?.workers].filter((each) => each?.desiredReplicas !== undefined)
  if (parts.length > 0) {
    const sum = (count: (part: NonNullable<(typeof parts)[number]>) => number | undefined): number =>
      parts.reduce((before, each) => before + ((each && count(each)) ?? 0), 0)
    const wanted = sum((each) => each.desiredReplicas)
    if (wanted > 0) return { ready: sum((each) => each.readyReplicas), wanted }
  }
  const nodes = managed?.status?.nodeCount
  return nodes === undefined ? undefined : { ready: nodes, wanted: nodes }
}
