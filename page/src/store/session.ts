// Who is logged in. Nothing of it is stored in the browser: the server is asked when the page is loaded.
import { reactive } from 'vue'
import { asFailure, onSignedOut, type Failure } from '@/api/http'
import * as api from '@/api/session'

type Phase = 'asking' | 'out' | 'must-change' | 'in' | 'unreachable'

interface Session {
  phase: Phase
  user: api.OwnUser | undefined
  failure: Failure | undefined
  /** The server ended a session that was in use. */
  ended: boolean
  begin(): Promise<void>
  logIn(username: string, password: string): Promise<void>
  changePassword(current: string, password: string): Promise<void>
  logOut(): Promise<void>
}

export const session: Session = reactive<Session>({
  phase: 'asking',
  user: undefined,
  failure: undefined,
  ended: false,

  async begin() {
    try {
      this.user = await api.ownUser()
      this.failure = undefined
      this.phase = this.user?.mustChangePassword ? 'must-change' : 'in'
    } catch (error) {
      const failure = asFailure(error)
      if (failure.kind === 'credentials') this.phase = 'out'
      else {
        this.failure = failure
        this.phase = 'unreachable'
      }
    }
  },

  async logIn(username, password) {
    await api.logIn(username, password)
    this.ended = false
    await this.begin()
  },

  async changePassword(current, password) {
    await api.changePassword(current, password)
    await this.begin()
  },

  async logOut() {
    await api.logOut()
    this.phase = 'out'
    this.user = undefined
  }
})

onSignedOut(() => {
  if (session.phase === 'in' || session.phase === 'must-change') {
    session.phase = 'out'
    session.ended = true
    session.user = undefined
  }
})
