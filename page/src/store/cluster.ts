// One cluster and what belongs to it, for the tabs of its view.
import { computed, inject, provide, type ComputedRef, type InjectionKey } from 'vue'
import {
  CLUSTER,
  CLUSTER_NAME_LABEL,
  MACHINE,
  MANAGED,
  type Cluster,
  type Machine,
  type Managed
} from '@/api/kinds'
import { rowOf, type ClusterRow } from './clusters'
import { useResources, type LiveList } from './resources'

export interface ClusterStore {
  row: ComputedRef<ClusterRow>
  declared: LiveList<Cluster>
  managed: LiveList<Managed>
  machines: LiveList<Machine>
}

const KEY: InjectionKey<ClusterStore> = Symbol('cluster')

export function provideCluster(namespace: () => string, name: () => string): ClusterStore {
  const id = computed(() => `${namespace()}/${name()}`)
  const declared = useResources<Cluster>(() => ({ type: CLUSTER, id: id.value }))
  const identifier = computed(() => declared.items[0]?.status?.clusterName)
  const managed = useResources<Managed>(() => (identifier.value ? { type: MANAGED, id: identifier.value } : undefined))
  const machines = useResources<Machine>(() => ({
    type: MACHINE,
    namespace: namespace(),
    selector: `${CLUSTER_NAME_LABEL}=${name()}`
  }))
  const row = computed(() => rowOf(declared.items[0], managed.items[0], undefined))
  const store = { row, declared, managed, machines }
  provide(KEY, store)
  return store
}

export function useCluster(): ClusterStore {
  const found = inject(KEY)
  if (!found) throw new Error('useCluster is for the tabs of a cluster')
  return found
}
