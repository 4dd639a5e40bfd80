// Who is refused most, uses most, or violates most.
import { get, given, namesOf, query } from '../api.js';
import { h, put, setText } from '../dom.js';
import { count, keyText, percent } from '../format.js';
import { button, empty, href, link, panel, pill, segments, select, share, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';
import { banDialog, lift } from './bans.js';
import { history } from './history.js';

const kinds = ['keys', 'rules', 'paths', 'clients'];
const orders = ['refusals', 'use', 'violations'];
const spans = ['15m', '1h', '6h', '1d', '7d', '14d'];

export async function offenders(ctx) {
  const pick = (name, all, otherwise) => (all.includes(ctx.params.get(name)) ? ctx.params.get(name) : otherwise);
  const q = { of: pick('of', kinds, 'keys'), by: pick('by', orders, 'refusals'), since: pick('since', spans, '1h'), limit: pick('limit', ['50', '200', '1000'], '50'), rule: ctx.params.get('rule') || '' };
  const go = (change) => { location.hash = href(['offenders', { ...q, ...change }]).slice(1); };
  const trouble = h('div');
  const note = h('p', { class: 'foot-note' });
  const total = h('span', { class: 'num' });
  const detail = h('div');
  const names = q.of === 'keys' ? await namesOf(ctx.signal) : [];
  let sum = 0;
  let banned = new Map(); // the bans that run, by rule and key or by network
  const banOf = (o) => banned.get(o.rule ? `${o.rule}\u0000${keyText(o.key)}` : o.name);
  const grid = table({
    label: t('nav.offenders'),
    id: (o) => `${o.rule || ''}\u0000${o.name ?? keyText(o.key)}`,
    empty: empty(t(`offenders.none.${q.by}`), t('offenders.none.text')),
    columns: [
      { name: 'rank', title: '#', num: true, opt: true, cell: (o) => h('span', { class: 'muted' }, o.rank) },
      { name: 'what', title: t(`of.${q.of}`), grow: true, cell: (o) => [what(q.of, o), banOf(o) ? [' ', pill(t('bans.is'), 'bad')] : null] },
      q.of === 'keys' && !q.rule ? { name: 'rule', title: t('col.rule'), cell: (o) => link(['rules', { rule: o.rule }], o.rule, { class: 'clip' }) } : null,
      { name: 'count', title: t(`by.${q.by}`), num: true, cell: (o) => [count(o.count), o.error ? h('span', { class: 'muted opt' }, ` −${count(o.error)}`) : null] },
      { name: 'share', title: t('offenders.share'), num: true, opt: true, cell: (o) => (sum ? [h('span', { class: 'muted' }, percent(o.count / sum), ' '), share(o.count / sum)] : null) },
      { name: 'act', title: '', act: true, cell: (o) => actions(o) },
    ].filter(Boolean),
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head),
    h('div', { class: 'controls' },
      segments(t('offenders.of'), kinds.map((k) => [k, t(`of.${k}`)]), q.of, (of) => go({ of, rule: '' }), { name: 'of' }),
      segments(t('offenders.by'), orders.map((k) => [k, t(`by.${k}`)]), q.by, (by) => go({ by }), { name: 'by' }),
      select(t('offenders.since'), spans.map((s) => [s, t('offenders.last', { span: s })]), q.since, (since) => go({ since }), { testid: 'select-since' }),
      q.of === 'keys' ? select(t('col.rule'), [['', t('offenders.anyrule')], ...names.map((n) => [n, n])], q.rule, (rule) => go({ rule }), { testid: 'select-rule' }) : null,
      select(t('offenders.limit'), ['50', '200', '1000'].map((n) => [n, t('offenders.top', { n })]), q.limit, (limit) => go({ limit }), { testid: 'select-limit' })),
    trouble,
    panel(t('offenders.title', { of: t(`of.${q.of}`), by: t(`by.${q.by}`) }), total, grid.node, note),
    detail);

  function actions(o) {
    const about = given({ of: q.of, by: q.by, rule: o.rule, key: o.key !== undefined ? keyText(o.key) : '', name: o.name });
    const title = o.name ?? keyText(o.key);
    return [
      button('history', t('history.show'), () => {
        put(detail, panel(t('history.of', { name: title }), null, history(about, ctx.signal)));
        detail.scrollIntoView({ block: 'nearest' });
      }, { class: q.of === 'keys' ? 'small opt' : 'small' }), // the page of a key has its history
      banOf(o) ? writeButton('lift', t('bans.lift'), () => lift(banOf(o), bansNow), { class: 'small' }) : null,
      q.of === 'keys' && !o.hashed && !banOf(o) ? writeButton('ban', t('bans.ban'), async () => (await banDialog({ rule: o.rule, key: o.key }, title)) && bansNow(), { class: 'small' }) : null,
      q.of === 'clients' && !o.hashed && !banOf(o) ? writeButton('ban', t('bans.ban'), async () => (await banDialog({ network: o.name }, title)) && bansNow(), { class: 'small' }) : null,
    ];
  }
  const bansNow = async () => {
    const all = await get('v1/bans?limit=10000', { signal: ctx.signal });
    banned = new Map([...all.by_hand.map((b) => ({ ...b, hand: true })), ...all.by_penalty].filter((b) => !b.problem && !b.hashed).map((b) => [b.network || `${b.rule}\u0000${keyText(b.key)}`, b]));
    if (seen) show();
  };
  const show = () => grid.set(seen.map((o) => ({ ...o, banned: Boolean(banOf(o)) })));
  let seen = null;
  if (q.of === 'keys' || q.of === 'clients') ctx.every(20_000, bansNow, trouble); // the store walks through them
  return ctx.every(5_000, async () => {
    const answer = await get('v1/offenders' + query(q), { signal: ctx.signal });
    sum = answer.total;
    setText(total, t('offenders.total', { n: count(answer.total), instances: answer.instances }));
    seen = answer.offenders.map((o, i) => ({ ...o, rank: i + 1, sum }));
    show();
    const off = Math.max(0, ...answer.offenders.map((o) => o.error));
    setText(note, answer.missing ? t('offenders.missing', { why: answer.missing }) : off > 0 ? t('offenders.error', { n: count(off) }) : answer.offenders.length ? t('offenders.exact') : '');
  }, trouble);
}

function what(of, o) {
  const text = o.name ?? keyText(o.key);
  if (o.hashed) return h('span', { class: 'mono', title: t('offenders.hashed') }, text);
  if (of === 'keys') return link(['keys', { rule: o.rule, key: text }], text, { class: 'mono', title: text });
  if (of === 'rules') return link(['rules', { rule: o.name }], o.name);
  return h('span', { class: 'mono', title: text }, text);
}
