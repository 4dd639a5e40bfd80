// The changes of the last days, in the whole fleet.
import { get } from '../api.js';
import { diffBox } from '../diff.js';
import { ask } from '../dialog.js';
import { h, put } from '../dom.js';
import { exact, time } from '../format.js';
import { button, empty, facts, panel, pill } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

export function audit(ctx) {
  const trouble = h('div');
  const filter = h('input', { type: 'search', 'aria-label': t('audit.filter'), placeholder: t('audit.filter'), testid: 'input-filter', class: 'filter', on: { input: () => show() } });
  let all = [];
  const grid = table({
    label: t('nav.audit'),
    id: (e) => e.id,
    empty: empty(t('audit.none'), t('audit.none.text')),
    columns: [
      { name: 'at', title: t('col.time'), cell: (e) => h('span', { class: 'num', title: exact(e.at) }, time(e.at)) },
      { name: 'who', title: t('col.who'), opt: true, cell: (e) => h('span', { class: 'clip', title: e.from }, e.who || '–') },
      { name: 'action', title: t('col.action'), cell: (e) => h('span', {}, e.action, e.pending ? [' ', pill(t('audit.pending'), 'warn')] : null) },
      { name: 'what', title: t('audit.what'), grow: 'half', cell: (e) => h('span', { title: e.what }, e.what || '–') },
      { name: 'reason', title: t('field.reason'), grow: 'half', opt: true, cell: (e) => h('span', { title: e.reason }, e.reason || '') },
      { name: 'host', title: t('col.host'), opt: true, cell: (e) => h('span', { class: 'muted clip' }, e.host) },
      { name: 'act', title: '', act: true, cell: (e) => button('details', t('audit.details'), () => details(e), { class: 'small' }) },
    ],
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head), trouble, panel(t('audit.title'), filter, grid.node));

  function show() {
    const text = filter.value.trim().toLowerCase();
    grid.set(text ? all.filter((e) => JSON.stringify(e).toLowerCase().includes(text)) : all);
  }
  return ctx.every(10_000, async () => {
    all = (await get('v1/audit?limit=1000', { signal: ctx.signal })).entries;
    show();
  }, trouble);
}

function details(e) {
  return ask({
    title: [e.action, e.what].filter(Boolean).join(': '),
    wide: true,
    body: h('div', { class: 'stack' },
      facts([
        [t('col.time'), exact(e.at)], [t('col.who'), e.who], [t('audit.from'), e.from], [t('col.host'), e.host],
        [t('field.reason'), e.reason], [t('audit.decision'), e.decision && h('code', {}, e.decision)], [t('audit.pending'), e.pending], [t('audit.id'), h('code', {}, e.id)],
      ]),
      e.before || e.after ? diffBox(pretty(e.before), pretty(e.after), 50) : null),
    submit: t('dialog.close'),
  });
}

function pretty(text) {
  if (!text) return '';
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
