// The API `/v1`: every kind of the server in one form, with links for what the caller may do (docs/rancher-clients.md).
import { request } from './http'

export interface State {
  name: string
  error: boolean
  transitioning: boolean
  message: string
}

export interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  lastTransitionTime?: string
  lastUpdateTime?: string
  error?: boolean
  transitioning?: boolean
}

export interface Relationship {
  fromId?: string
  fromType?: string
  toId?: string
  toType?: string
  rel: string
}

export interface Metadata {
  name: string
  namespace?: string
  uid?: string
  resourceVersion?: string
  creationTimestamp?: string
  deletionTimestamp?: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
  ownerReferences?: { kind: string; name: string; uid: string; controller?: boolean }[]
  fields?: unknown[]
  relationships?: Relationship[]
  state?: State
}

/** An object as `/v1` shows it. What its spec and status hold is in kinds.ts. */
export interface Resource<Spec = unknown, Status = unknown> {
  id: string
  type: string
  links: Record<string, string>
  apiVersion?: string
  kind?: string
  metadata: Metadata
  spec?: Spec
  status?: Status & { conditions?: Condition[] }
}

export interface Listed<T> {
  revision: string
  data: T[]
}

export interface Schema {
  id: string
  pluralName: string
  links: Record<string, string>
  resourceMethods: string[]
  collectionMethods: string[]
  attributes: { kind: string; namespaced: boolean; verbs: string[]; columns: { name: string }[] }
}

/** The objects to list and watch: of a type, and of a namespace, an id or a label selector. */
export interface Scope {
  type: string
  namespace?: string
  /** NAMESPACE/NAME, or NAME of a kind without namespaces. */
  id?: string
  selector?: string
}

const WITHOUT = 'exclude=metadata.managedFields'

export async function list<T extends Resource>(scope: Scope, signal?: AbortSignal): Promise<Listed<T>> {
  if (scope.id) {
    const found = await request<T>('GET', `/v1/${scope.type}/${scope.id}?${WITHOUT}`, { signal })
    return { revision: found.metadata.resourceVersion ?? '', data: [found] }
  }
  const place = scope.namespace ? `${scope.type}/${scope.namespace}` : scope.type
  const selector = scope.selector ? `&labelSelector=${encodeURIComponent(scope.selector)}` : ''
  return request<Listed<T>>('GET', `/v1/${place}?${WITHOUT}${selector}`, { signal })
}

export function schemas(): Promise<{ data: Schema[] }> {
  return request('GET', '/v1/schemas')
}
