// What other rules would have refused of the last minutes' requests.
import { h } from '../dom.js';
import { count, percent, time } from '../format.js';
import { empty, outcome, panel } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

// previewBox is for an answer of the API. peaks is the node about its limits, or nothing.
export function previewBox(p, peaks) {
  if (!p.requests) return empty(t('preview.none'), t('preview.none.text'));
  const share = (c) => percent(c.refused / Math.max(1, c.refused + c.allowed));
  const delta = p.then.refused - p.now.refused;
  const rules = table({
    label: t('preview.rules'),
    id: (r) => r.name,
    columns: [
      { name: 'rule', title: t('col.rule'), grow: true, cell: (r) => r.name },
      { name: 'now', title: t('preview.now'), num: true, cell: (r) => count(r.now) },
      { name: 'then', title: t('preview.then'), num: true, cell: (r) => count(r.then) },
      { name: 'delta', title: '±', num: true, cell: (r) => h('span', { class: r.then > r.now ? 'bad' : r.then < r.now ? 'good' : 'muted' }, signed(r.then - r.now)) },
    ],
  });
  rules.set(p.rules);
  const cases = table({
    label: t('preview.cases'),
    id: (_, i) => i,
    name: 'case',
    empty: empty(t('preview.same'), null),
    columns: [
      { name: 'client', title: t('col.client'), cell: (c) => h('span', { class: 'mono', title: time(c.at) }, c.client) },
      { name: 'request', title: t('col.request'), grow: true, cell: (c) => h('span', { class: 'mono', title: `${c.method} ${c.path}` }, `${c.method} ${c.path}`) },
      { name: 'then', title: t('preview.then'), cell: (c) => outcome(c.then) },
      { name: 'rule', title: t('col.rule'), opt: true, cell: (c) => c.rule },
    ],
  });
  cases.set(p.sample);
  return h('div', { class: 'stack', testid: 'preview' },
    h('div', { class: 'preview-sum panel num' },
      sum(t('preview.now'), share(p.now), t('preview.refused', { n: count(p.now.refused) })),
      sum(t('preview.then'), share(p.then), t('preview.refused', { n: count(p.then.refused) }), delta > 0 ? 'bad' : delta < 0 ? 'good' : '')),
    h('p', { class: 'hint' }, t('preview.basis', { n: count(p.requests), from: time(p.from) }), p.share > 1 ? ` ${t('preview.share', { n: p.share })}` : '', p.partial ? ` ${t('preview.partial')}` : ''),
    panel(t('preview.rules'), null, rules.node),
    peaks,
    panel(t('preview.cases'), null, cases.node));
}

const signed = (n) => (n > 0 ? `+${count(n)}` : n < 0 ? `−${count(-n)}` : '0');

function sum(title, share, more, kind = '') {
  return h('div', {}, h('div', { class: 'muted' }, title), h('div', { class: `big ${kind}` }, share), h('div', { class: 'muted' }, more));
}
