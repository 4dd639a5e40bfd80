// Calls of the admin API.

// Problem is an answer that is no success, or none at all (status 0).
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.problems = body.problems || [];
    this.newest = body.newest;
  }
}

let signIn = null;

// onSignedOut sets what a call does after 401: ask returns a promise that is fulfilled when
// the user has signed in; the call is then repeated.
export function onSignedOut(ask) {
  signIn = ask;
}

const patience = 20_000; // ms; the server gives up after 10 s

// call returns the JSON of the answer, or throws a Problem.
export async function call(method, path, body, { signal, ask = true } = {}) {
  for (;;) {
    const { answer, json } = await send(method, path, body, signal);
    signal?.throwIfAborted();
    if (answer.status === 401 && ask && signIn) {
      await signIn();
      signal?.throwIfAborted();
      continue;
    }
    if (!answer.ok) throw new Problem(answer.status, json || {});
    if (json === null) throw new Problem(0, {}); // it broke off
    return json;
  }
}

// send returns the answer and its JSON; null: it has none. Timer and listener go with the call:
// AbortSignal.timeout and any would keep what the call holds until their time is over.
async function send(method, path, body, signal) {
  const calling = new AbortController();
  const abort = () => calling.abort();
  const timer = setTimeout(abort, patience);
  signal?.addEventListener('abort', abort);
  try {
    signal?.throwIfAborted();
    const answer = await fetch(path.replace(/^\//, ''), {
      method,
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: calling.signal,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
    });
    return { answer, json: await answer.json().catch(() => null) };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {});
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

export const get = (path, options) => call('GET', path, undefined, options);
export const post = (path, body, options) => call('POST', path, body, options);

// query makes ?a=b of an object, without what is empty.
export function query(values) {
  const given = Object.entries(values).filter(([, v]) => v !== undefined && v !== null && v !== '');
  return given.length ? '?' + new URLSearchParams(given) : '';
}

// given is an object without its empty texts, as the API wants it.
export const given = (values) => Object.fromEntries(Object.entries(values).filter(([, v]) => v !== '' && v !== undefined && v !== null));

// namesOf are the names of the rules in force.
export const namesOf = async (signal) => (await get('v1/rules', { signal })).rules.map((r) => r.name);
