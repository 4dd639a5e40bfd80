// The sign-in. The token goes to the server in the body of one call, which answers with a
// cookie that scripts cannot read; it is kept nowhere in the page.
import { call, get, Problem } from './api.js';
import { h, put } from './dom.js';
import { problemBox } from './parts.js';
import { become, who } from './session.js';
import { t } from './text.js';

let asking = null;

// askToken shows the sign-in above the page, so that nothing that was typed is lost. All
// calls that wait for it share one dialog.
export function askToken() {
  asking ??= new Promise((resolve) => open(resolve)).finally(() => {
    asking = null;
  });
  return asking;
}

function open(done) {
  const ended = who() !== null;
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
