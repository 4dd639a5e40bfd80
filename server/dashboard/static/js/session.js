// Who uses the page, and the sign-in. The token goes to the server in the body of one call,
// which answers with a cookie that scripts cannot read; it is kept nowhere in the page.
import { call, get, onSignedOut, Problem } from './api.js';
import { h, put } from './dom.js';
import { problemBox } from './parts.js';
import { t } from './text.js';

// session is null until it is known, then {name, scope, by}.
let session = null;
let asking = null;
const changes = new Set();

export const who = () => session;
export const canWrite = () => session?.scope === 'write';
export const onSession = (listener) => changes.add(listener);

function become(next) {
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

// askToken shows the sign-in above the page, so that nothing that was typed is lost. All
// calls that wait for it share one dialog.
function askToken() {
  asking ??= new Promise((resolve) => open(resolve)).finally(() => {
    asking = null;
  });
  return asking;
}

function open(done) {
  const ended = session !== null;
  const token = h('input', {
    type: 'password', id: 'token', name: 'token', autocomplete: 'current-password', required: true,
    testid: 'input-token', spellcheck: 'false', 'aria-describedby': 'token-hint', autofocus: true,
  });
  const trouble = h('div', { role: 'alert' });
  const button = h('button', { class: 'primary', type: 'submit', testid: 'btn-signin' }, t('signin.submit'));
  const form = h('form', { class: 'stack', on: { submit } },
    h('h1', { id: 'signin-title' }, t('signin.title')),
    ended ? h('p', { class: 'note', testid: 'signin-ended' }, t('signin.ended')) : null,
    h('label', { for: 'token' }, t('signin.token')),
    token,
    h('p', { class: 'hint', id: 'token-hint' }, t('signin.hint')),
    trouble,
    button);
  const dialog = h('dialog', {
    class: 'signin', testid: 'page-signin', 'aria-labelledby': 'signin-title',
    on: { cancel: (event) => event.preventDefault() },
  }, form);
  document.body.append(dialog);
  dialog.showModal();

  async function submit(event) {
    event.preventDefault();
    const value = token.value.trim();
    if (!value) return;
    button.disabled = true;
    put(trouble);
    try {
      await call('POST', 'v1/session', { token: value }, { ask: false });
      const next = await get('v1/session', { ask: false });
      token.value = '';
      dialog.close();
      dialog.remove();
      become(next);
      done();
    } catch (error) {
      token.value = '';
      const wrong = error instanceof Problem && error.status === 401;
      put(trouble, wrong ? h('p', { class: 'bad', testid: 'signin-wrong' }, t('signin.wrong')) : problemBox(error));
      token.focus();
    } finally {
      button.disabled = false;
    }
  }
}

onSignedOut(askToken);
