// Dialogs that ask before something changes, and short messages after it has.
import { h, put } from './dom.js';
import { problemBox } from './parts.js';
import { t } from './text.js';

let serial = 0;

// ask shows a dialog and calls run(values) when it is submitted. It closes when run is
// fulfilled, and shows the error otherwise. The promise is of what run returned, or of null
// if the user cancelled. Without run the dialog only shows something.
//
// fields: [{name, label, type, value, hint, options, required, rows, placeholder}], type
// being text, number, textarea or select. body is shown above them.
export function ask({ title, body, fields = [], submit, danger = false, wide = false, run }) {
  return new Promise((resolve) => {
    const id = `d${++serial}`;
    const inputs = new Map();
    const trouble = h('div', { role: 'alert' });
    const yes = h('button', { type: 'submit', class: danger ? 'danger' : 'primary', testid: 'btn-confirm' }, submit || t('dialog.ok'));
    const no = h('button', { type: 'button', testid: 'btn-cancel', on: { click: () => dialog.close() } }, t('dialog.cancel'));
    const form = h('form', { class: 'stack', on: { submit: send } },
      h('h2', { id }, title),
      body || null,
      fields.map((field) => row(field, `${id}-${field.name}`, inputs)),
      trouble,
      h('div', { class: 'buttons' }, run ? no : null, yes));
    const dialog = h('dialog', { class: wide ? 'wide' : '', testid: 'dialog', 'aria-labelledby': id, on: { close } }, form);
    const before = document.activeElement;
    let result = null;
    document.body.append(dialog);
    dialog.showModal();
    (inputs.values().next().value || yes).focus();

    async function send(event) {
      event.preventDefault();
      yes.disabled = true;
      put(trouble);
      try {
        const values = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
        result = run ? (await run(values)) ?? true : true;
        dialog.close();
      } catch (error) {
        put(trouble, problemBox(error));
      } finally {
        yes.disabled = false;
      }
    }

    function close() {
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(result);
    }
  });
}

function row(field, id, inputs) {
  const props = {
    id, name: field.name, testid: `input-${field.name}`, required: field.required, placeholder: field.placeholder,
    'aria-describedby': field.hint ? `${id}-hint` : null, autocomplete: 'off', spellcheck: 'false',
  };
  let input;
  if (field.type === 'select') {
    input = h('select', props, field.options.map(([v, text]) => h('option', { value: v, selected: v === field.value }, text)));
  } else if (field.type === 'textarea') {
    input = h('textarea', { ...props, rows: field.rows || 3, value: field.value || '' });
  } else {
    input = h('input', { ...props, type: field.type || 'text', min: field.min, value: field.value ?? '' });
  }
  inputs.set(field.name, input);
  return h('div', { class: 'field' },
    h('label', { for: id }, field.label),
    input,
    field.hint ? h('p', { class: 'hint', id: `${id}-hint` }, field.hint) : null);
}

// reason is the field that goes into the audit log.
export const reason = () => ({ name: 'reason', label: t('field.reason'), hint: t('field.reason.hint') });

// term is the field that says for how long.
export const term = (value = '1h') => ({ name: 'for', label: t('field.for'), value, hint: t('field.for.hint') });

const tray = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });

// say shows a message for some seconds.
export function say(text, kind = '') {
  if (!tray.isConnected) document.body.append(tray);
  const message = h('div', { class: `toast ${kind}`, testid: 'toast' }, text);
  tray.append(message);
  setTimeout(() => message.remove(), kind === 'bad' ? 12_000 : 5_000);
}

// done says that a change was made, and that it is pending if it is.
export function done(text, answer) {
  if (answer?.pending) say(`${text} ${answer.pending}`, 'warn');
  else say(text);
}
