// Logging in and out, and the caller's own user.
import { request } from './http'

export interface OwnUser {
  id: string
  username: string
  name: string
  mustChangePassword: boolean
}

export async function ownUser(): Promise<OwnUser | undefined> {
  const found = await request<{ data: OwnUser[] }>('GET', '/v3/users?me=true')
  return found.data[0]
}

export async function logIn(username: string, password: string): Promise<void> {
  await request('POST', '/v3-public/localProviders/local?action=login', {
    body: { username, password, responseType: 'cookie', description: 'web page' }
  })
}

export async function logOut(): Promise<void> {
  await request('POST', '/v1/logout')
}

export async function changePassword(currentPassword: string, newPassword: string): Promise<void> {
  await request('POST', '/v3/users?action=changepassword', { body: { currentPassword, newPassword } })
}
