// The editor of the fleet's rules: check while typing, difference, preview, push.
import { call, get, post, Problem } from '../api.js';
import { diffBox, lines, summary } from '../diff.js';
import { ask, done } from '../dialog.js';
import { h, put } from '../dom.js';
import { button, pill, problemBox, writeButton } from '../parts.js';
import { t } from '../text.js';
import { amountAt, peaksBox } from './peaks.js';
import { previewBox } from './preview.js';

const pause = 700; // ms after the last key until the text is checked
const drafts = new Map(); // number of the version that was edited → text, until the page is closed

const fewest = 12; // lines that the editor shows
const example = 'rules:\n  - name: login\n    match: operation == "login"\n    key: client.ip\n    limits: [5 per 1m]';

export async function editor(ctx, tabs) {
  put(ctx.root, h('div', { class: 'title' }, ctx.head), tabs);
  const [base, inForce] = await Promise.all([newest(ctx.signal), get('v1/rules', { signal: ctx.signal })]);
  const area = h('textarea', {
    class: 'code editor', id: 'rules-text', testid: 'editor', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', wrap: 'off',
    value: drafts.get(base.number) ?? base.text, 'aria-describedby': 'editor-state', placeholder: example,
  });
  const gutter = h('pre', { class: 'gutter num', 'aria-hidden': 'true' });
  const state = h('div', { id: 'editor-state', class: 'stack', role: 'status', testid: 'check' });
  const below = h('div', { class: 'stack', testid: 'below' });
  const push = inForce.pushable ? writeButton('push', t('edit.push'), () => pushDialog(base, area.value, ctx), { class: 'primary' }) : null;
  put(ctx.root, h('div', { class: 'title' }, ctx.head), tabs,
    h('p', { class: 'muted', testid: base.number ? null : 'empty' }, base.number ? t('edit.base', { n: base.number }) : [h('strong', {}, t('edit.none')), '. ', t('edit.none.text')]),
    inForce.pushable ? null : h('div', { class: 'notice', testid: 'nopush' }, inForce.rules.some((r) => r.descriptor) ? t('edit.envoy') : t('edit.nopush')),
    h('div', { class: 'grid edit-grid' },
      h('div', { class: 'stack' },
        h('label', { for: 'rules-text', class: 'only-read' }, t('edit.label')),
        h('div', { class: 'edit-box' }, gutter, area),
        h('div', { class: 'buttons' },
          button('diff', t('edit.diff'), () => put(below, diffBox(base.text, area.value))),
          button('preview', t('edit.preview'), () => preview(false)),
          push,
          button('revert', t('edit.revert'), revert, { class: 'plain' }))),
      h('div', { class: 'stack' }, state, below)));

  function number() {
    const n = area.value.split('\n').length;
    area.rows = Math.max(fewest, n + 1);
    const marked = new Set(wrong.map((p) => p.line));
    put(gutter, Array.from({ length: n }, (_, i) => h('span', { class: marked.has(i + 1) ? 'bad' : null }, `${i + 1}\n`)));
  }
  let wrong = [];
  let timer = 0;
  let turn = 0;

  async function check() {
    const mine = ++turn;
    if (!area.value.trim()) {
      wrong = [];
      pushable();
      number();
      put(state, h('p', { class: 'muted' }, t('edit.empty')));
      return;
    }
    try {
      const answer = await post('v1/rules/check', { text: area.value }, { signal: ctx.signal });
      if (mine !== turn) return;
      wrong = [];
      put(state, h('div', { class: 'buttons' }, pill(t('edit.valid'), 'good'), h('span', { class: 'muted num' }, t('edit.count', { n: answer.count }))),
        answer.findings.map((f) => h('div', { class: 'notice' }, pill(f.code), ' ', h('code', {}, f.where), ' ', f.text)));
    } catch (error) {
      if (mine !== turn || ctx.signal.aborted) return;
      wrong = error instanceof Problem ? error.problems.map(place) : [];
      put(state, wrong.length ? mistakes(wrong, area) : problemBox(error));
    }
    pushable();
    number();
  }

  // pushable allows a push of what is another text and has no mistake that is known.
  function pushable() {
    if (push) push.disabled = wrong.length > 0 || area.value === base.text;
  }

  // preview tries the text. again: it has another number than the preview that is shown, which stays until then.
  async function preview(again) {
    const text = area.value;
    const mine = ++previews;
    if (!again) put(below, h('p', { class: 'muted' }, t('preview.waiting')));
    try {
      const answer = await post('v1/rules/preview', { text }, { signal: ctx.signal });
      if (mine !== previews) return;
      peaks = answer.peaks.length ? { text, ...peaksBox(answer, { chosen, choose: (id) => { chosen = id; }, use }) } : null;
      peaks?.current(area.value === text);
      put(below, previewBox(answer, peaks?.node));
      if (again) peaks?.node.querySelector('input[type=range]')?.focus();
    } catch (error) {
      if (mine === previews && !ctx.signal.aborted) put(below, problemBox(error));
    }
  }
  let previews = 0;
  let peaks = null; // of the preview that is shown, and its text
  let chosen = null; // the limit whose peaks are shown

  // use writes another amount into the text, if that still has the old one where the preview found it.
  function use(limit, amount) {
    const at = area.value === peaks.text ? amountAt(area.value, limit.place, limit.amount) : -1;
    if (at < 0) return;
    area.setRangeText(String(amount), at, at + limit.place.length, 'end');
    changed();
    preview(true);
  }

  function revert() {
    area.value = base.text;
    changed();
  }

  function changed() {
    if (area.value === base.text) drafts.delete(base.number);
    else drafts.set(base.number, area.value);
    number();
    pushable();
    peaks?.current(area.value === peaks.text);
    clearTimeout(timer);
    timer = setTimeout(check, pause);
  }

  area.addEventListener('input', changed);
  area.addEventListener('scroll', () => { gutter.scrollTop = area.scrollTop; });
  ctx.signal.addEventListener('abort', () => clearTimeout(timer));
  number();
  pushable();
  check();
}

// newest is the newest version of the fleet's rules; number 0 and no text if there is none.
async function newest(signal) {
  const { versions } = await get('v1/rules/versions?limit=1', { signal });
  if (!versions.length) return { number: 0, text: '' };
  return get(`v1/rules/versions/${versions[0].number}`, { signal });
}

function place(p) {
  const at = /^(\d+):(\d+)/.exec(p.where || '');
  return { ...p, line: at ? Number(at[1]) : 0, column: at ? Number(at[2]) : 0 };
}

// mistakes are links to the places of the mistakes.
function mistakes(all, area) {
  return h('div', { class: 'problem', testid: 'mistakes' },
    h('p', { class: 'strong' }, t('edit.mistakes', { n: all.length })),
    h('ul', {}, all.map((p, i) => h('li', {},
      p.line ? h('button', { type: 'button', class: 'plain', testid: `btn-mistake-${i}`, on: { click: () => go(area, p) } }, p.where) : h('code', {}, p.where),
      ' ', p.text))));
}

function go(area, p) {
  const before = area.value.split('\n').slice(0, p.line - 1);
  const start = before.reduce((n, line) => n + line.length + 1, 0);
  const end = area.value.indexOf('\n', start);
  area.focus();
  area.setSelectionRange(start + p.column - 1, end < 0 ? area.value.length : end);
  const height = parseFloat(getComputedStyle(area).lineHeight) || 18;
  area.scrollTop = Math.max(0, (p.line - 6) * height);
}

async function pushDialog(base, text, ctx) {
  const { added, removed } = summary(lines(base.text, text));
  const pushed = await ask({
    title: t('push.title'),
    body: h('div', { class: 'stack' }, h('p', { class: 'muted' }, t('push.text', { n: base.number + 1, added, removed })), diffBox(base.text, text)),
    fields: [{ name: 'note', label: t('push.note'), hint: t('push.note.hint') }],
    submit: t('edit.push'),
    wide: true,
    run: async (v) => {
      try {
        return await call('PUT', 'v1/rules', { text, after: base.number, note: v.note });
      } catch (error) {
        if (error.status === 409 && error.newest !== undefined) error.message += ' ' + t('push.newer', { n: error.newest });
        throw error;
      }
    },
  });
  if (!pushed) return;
  drafts.delete(base.number);
  done(t('push.done', { n: pushed.number }), pushed);
  ctx.again();
}
