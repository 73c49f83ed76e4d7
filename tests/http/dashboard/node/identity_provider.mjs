// A certified provider of identities on loopback, with people whose groups a file names: each reading is the newest.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import Provider from 'oidc-provider'

const { callbacks, people, port } = JSON.parse(process.env.PROVIDER)
const issuer = `http://localhost:${port}`
const client = (client_id) => ({ client_id, client_secret: `${client_id}-secret-${'x'.repeat(32)}`, redirect_uris: callbacks })

const provider = new Provider(issuer, {
  clients: [client('relevo'), client('other')],
  claims: { openid: ['sub'], profile: ['name'], groups: ['groups'] },
  scopes: ['openid', 'profile', 'groups'],
  cookies: { keys: ['a', 'b'] },
  pkce: { required: () => true },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} Example`, groups: JSON.parse(readFileSync(people, 'utf8'))[id] ?? [] }),
  }),
})
createServer(provider.callback()).listen(port, 'localhost', () => console.log(issuer))
