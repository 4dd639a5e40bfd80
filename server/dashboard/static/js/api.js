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
    const answer = await send(method, path, body, signal);
    if (answer.status === 401 && ask && signIn) {
      await signIn();
      signal?.throwIfAborted();
      continue;
    }
    const json = await answer.json().catch(() => null);
    signal?.throwIfAborted();
    if (!answer.ok) throw new Problem(answer.status, json || {});
    if (json === null) throw new Problem(0, {}); // it broke off
    return json;
  }
}

async function send(method, path, body, signal) {
  const limit = AbortSignal.timeout(patience);
  try {
    return await fetch(path.replace(/^\//, ''), {
      method,
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {});
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
