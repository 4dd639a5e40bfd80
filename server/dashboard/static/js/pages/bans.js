// The bans, by hand and by penalty, with the lists and overrides in tabs beside them.
import { call, get, given, namesOf, post, query } from '../api.js';
import { ask, done, reason, term } from '../dialog.js';
import { h, put, setText } from '../dom.js';
import { count, keyText, readKey, span, time, until } from '../format.js';
import { empty, link, localNote, panel, pill, tabs, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';
import { list, overrides } from './entries.js';

// A list may be long, and the store walks through it. Changes by hand show at once.
const pause = 20_000; // ms

export function bans(ctx) {
  const at = ['blocklist', 'safelist', 'overrides'].includes(ctx.sub) ? ctx.sub : 'bans';
  const top = tabs(t('nav.bans'), [['bans', t('bans.bans'), 'bans'], ['bans/blocklist', t('bans.blocklist'), 'blocklist'], ['bans/safelist', t('bans.safelist'), 'safelist'], ['bans/overrides', t('bans.overrides'), 'overrides']], at);
  if (at === 'overrides') return overrides(ctx, top);
  if (at !== 'bans') return list(ctx, top, at);
  return banList(ctx, top);
}

function banList(ctx, top) {
  const trouble = h('div');
  const local = h('div');
  const total = h('span', { class: 'num muted', testid: 'bans-count' });
  const filter = h('input', { type: 'search', 'aria-label': t('bans.filter'), placeholder: t('bans.filter'), testid: 'input-filter', class: 'filter', on: { input: () => show() } });
  let all = [];
  let more = false;
  const target = (b) => b.network || keyText(b.key);
  const leftOf = (b) => (b.hand ? (b.until ? Date.parse(b.until) : Infinity) : b.ends);
  const since = (b) => (b.hand ? Date.parse(b.at) : b.for_us ? b.ends - b.for_us / 1000 : 0);
  const grid = table({
    label: t('bans.bans'),
    id: (b) => b.id || `${b.rule}\u0000${keyText(b.key)}`,
    empty: empty(t('bans.none'), t('bans.none.text')),
    columns: [
      { name: 'target', title: t('bans.target'), grow: 'half', sort: target, cell: (b) => (b.network || b.hashed ? h('span', { class: 'mono', title: target(b) }, target(b)) : link(['keys', { rule: b.rule, key: keyText(b.key) }], target(b), { class: 'mono', title: target(b) })) },
      { name: 'rule', title: t('col.rule'), sort: (b) => b.rule || '', cell: (b) => (b.rule ? h('span', { class: 'clip' }, b.rule) : h('span', { class: 'muted' }, t('bans.network'))) },
      { name: 'kind', title: t('bans.kind'), opt: true, sort: (b) => (b.hand ? 0 : 1), cell: (b) => (b.hand ? pill(t('bans.hand'), 'accent') : pill(t('bans.penalty', { n: b.bans }))) },
      { name: 'since', title: t('bans.since'), opt: true, sort: since, cell: (b) => (since(b) ? time(new Date(since(b)).toISOString()) : '–') },
      { name: 'why', title: t('col.why'), grow: 'half', opt: true, cell: (b) => (b.problem ? h('span', { title: b.problem }, pill(t('entry.problem'), 'warn'), ' ', b.problem) : h('span', { title: b.reason }, [b.author, b.reason].filter(Boolean).join(': '))) },
      { name: 'left', title: t('col.left'), num: true, sort: leftOf, cell: (b) => (b.hand ? (b.until ? until(b.until) : t('entry.always')) : span(Math.max(0, b.ends - Date.now()) * 1000)) },
      { name: 'act', title: '', act: true, cell: (b) => (b.hashed ? h('span', { class: 'muted' }, t('bans.hashed')) : writeButton('lift', t('bans.lift'), () => lift(b, ctx.refresh), { class: 'small' })) },
    ],
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head, writeButton('ban', t('bans.add'), () => add(ctx), { class: 'primary' })), top, trouble, local,
    panel([t('bans.bans'), ' ', total], filter, grid.node));

  function show() {
    const text = filter.value.trim().toLowerCase();
    const shown = text ? all.filter((b) => `${target(b)} ${b.rule || ''} ${b.author || ''} ${b.reason || ''}`.toLowerCase().includes(text)) : all;
    grid.set(shown);
    setText(total, (text ? `${count(shown.length)} / ` : '') + count(all.length) + (more ? '+' : ''));
  }
  let controls = null;
  ctx.onLive(({ last }) => {
    if (last && controls !== null && controls !== last.controls) ctx.refresh();
    controls = last?.controls ?? controls;
  });
  return ctx.every(pause, async () => {
    const answer = await get('v1/bans?limit=10000', { signal: ctx.signal });
    more = answer.truncated;
    all = [
      ...answer.by_hand.map((b) => ({ ...b, hand: true })),
      ...answer.by_penalty.map((b) => ({ ...b, ends: Date.now() + b.left_us / 1000 })).sort((a, b) => b.left_us - a.left_us),
    ];
    put(local, localNote(answer));
    show();
  }, trouble);
}

// lift asks before it lifts a ban, as v1/bans lists it.
export async function lift(b, changed) {
  const ok = await ask({
    title: t('bans.lift.ask', { target: b.network || keyText(b.key) }),
    body: h('p', { class: 'muted' }, b.hand ? t('bans.lift.hand') : t('key.lift.text')),
    fields: [reason()],
    submit: t('bans.lift'),
    run: async (v) => {
      const answer = b.hand
        ? await call('DELETE', `v1/bans/${encodeURIComponent(b.id)}` + query(given(v)))
        : await post('v1/bans/lift', given({ rule: b.rule, key: b.key, reason: v.reason }));
      done(t('bans.lifted'), answer);
      return true;
    },
  });
  if (ok) changed();
}

async function add(ctx) {
  const names = await namesOf(ctx.signal);
  const ok = await ask({
    title: t('bans.add'),
    body: h('p', { class: 'muted' }, t('bans.add.text')),
    fields: [
      { name: 'network', label: t('field.network'), hint: t('field.network.hint') },
      { name: 'rule', label: t('col.rule'), type: 'select', options: [['', t('bans.norule')], ...names.map((n) => [n, n])] },
      { name: 'key', label: t('col.key'), hint: t('bans.key.hint') },
      term(), reason(),
    ],
    submit: t('bans.ban'),
    danger: true,
    run: async (v) => {
      done(t('bans.added'), await post('v1/bans', given({ ...v, key: v.key && readKey(v.key) })));
      return true;
    },
  });
  if (ok) ctx.refresh();
}

// banDialog asks before it bans target, {rule, key} or {network}, whose name is title.
export function banDialog(target, title) {
  return ask({
    title: t('bans.ask', { target: title }),
    body: h('p', { class: 'muted' }, target.rule ? t('key.ban.text', { rule: target.rule }) : t('network.ban.text')),
    fields: [term(), reason()],
    submit: t('bans.ban'),
    danger: true,
    run: async (v) => {
      done(t('bans.added'), await post('v1/bans', given({ ...target, ...v })));
      return true;
    },
  });
}
