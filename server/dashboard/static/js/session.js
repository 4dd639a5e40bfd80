// Who uses the page, and what that user may do.
import { call, get } from './api.js';

// session is null until it is known, then {name, scope, by}.
let session = null;
const changes = new Set();

export const who = () => session;
export const canWrite = () => session?.scope === 'write';
export const onSession = (listener) => changes.add(listener);

// become makes next the session, and tells the listeners if it is another user or scope.
export function become(next) {
  const same = session && next && session.name === next.name && session.scope === next.scope;
  session = next;
  if (!same) for (const listener of changes) listener();
}

// load finds out who the user is, and asks for a token if one is needed.
export async function load() {
  become(await get('v1/session'));
}

export async function signOut() {
  await call('DELETE', 'v1/session', undefined, { ask: false });
}
