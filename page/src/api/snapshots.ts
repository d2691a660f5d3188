// Backups of a cluster's state, each with its copies: the server says which files are one backup.
import { request } from './http'

export interface Copy {
  name: string
  storage: string
  state: string
  file: string
  location: string
  node: string
  size: number
  message: string
  verification: { result?: string; message?: string } | null
}

export interface Snapshot {
  name: string
  namespace: string
  created: string
  state: 'available' | 'missing' | 'failed'
  size: number
  kubernetesVersion: string
  copies: Copy[]
}

export async function snapshotsOf(namespace: string, name: string, signal: AbortSignal): Promise<Snapshot[]> {
  const path = `/v1-remuda/snapshots?cluster=${encodeURIComponent(`${namespace}/${name}`)}`
  return (await request<{ snapshots: Snapshot[] }>('GET', path, { signal })).snapshots
}

/** Delete all copies; their files are removed from hosts and buckets. */
export async function removeSnapshot(snapshot: Snapshot): Promise<void> {
  for (const copy of snapshot.copies) await request('DELETE', `/v1/rke.cattle.io.etcdsnapshot/${snapshot.namespace}/${copy.name}`)
}
