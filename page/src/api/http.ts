// Requests to the server that this page came from. The session is in a cookie that no script can read; a request that changes
// something repeats the second cookie in a header (docs/access.md).

export type FailureKind =
  | 'credentials' // not logged in, or a wrong password
  | 'forbidden'
  | 'missing'
  | 'conflict'
  | 'invalid'
  | 'throttled'
  | 'server'
  | 'offline' // no answer at all

const KINDS: Record<number, FailureKind> = {
  401: 'credentials',
  403: 'forbidden',
  404: 'missing',
  409: 'conflict',
  429: 'throttled'
}

/** An answer that is not a success; `message` is the server's own sentence. */
export class Failure extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
    readonly status = 0,
    readonly code = '',
    readonly retryAfter = 0
  ) {
    super(message)
  }
}

export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error
  return new Failure('server', error instanceof Error ? error.message : String(error))
}

function kindOf(status: number): FailureKind {
  return KINDS[status] ?? (status < 500 ? 'invalid' : 'server')
}

function csrfToken(): string {
  const found = document.cookie.split('; ').find((each) => each.startsWith('CSRF='))
  return found?.slice('CSRF='.length) ?? ''
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

export interface Options {
  body?: unknown
  /** The type of the body, where it is no plain JSON. */
  type?: string
  signal?: AbortSignal
}

let signedOut: () => void = () => {}

/** Call `handler` when the server no longer accepts the session. */
export function onSignedOut(handler: () => void): void {
  signedOut = handler
}

async function failureOf(response: Response): Promise<Failure> {
  let said: { message?: string; code?: string; reason?: string } = {}
  try {
    said = (await response.json()) as typeof said
  } catch {
    // A proxy in front of the server answers in its own way.
  }
  const retryAfter = Number(response.headers.get('Retry-After')) || 0
  const code = String(said.code ?? said.reason ?? '')
  return new Failure(kindOf(response.status), said.message ?? response.statusText, response.status, code, retryAfter)
}

export async function request<T>(method: Method, path: string, options: Options = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: 'application/json' }
  const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' }
  if (options.signal) init.signal = options.signal
  if (method !== 'GET') headers['X-API-CSRF'] = csrfToken()
  if (options.body !== undefined) {
    headers['Content-Type'] = options.type ?? 'application/json'
    init.body = typeof options.body === 'string' ? options.body : JSON.stringify(options.body)
  }
  let response: Response
  try {
    response = await fetch(path, init)
  } catch (error) {
    if (options.signal?.aborted) throw error
    throw new Failure('offline', String(error))
  }
  if (!response.ok) {
    const failure = await failureOf(response)
    if (failure.kind === 'credentials') signedOut()
    throw failure
  }
  const text = await response.text()
  return (text ? JSON.parse(text) : undefined) as T
}
