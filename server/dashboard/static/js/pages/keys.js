// Find a key: what it has used of each limit, live, its history, and what to do about it.
import { call, get, given, namesOf, post, query } from '../api.js';
import { ask, done, reason, say, term } from '../dialog.js';
import { h, put } from '../dom.js';
import { count, exact, keyText, readKey, span, until } from '../format.js';
import { code, empty, href, link, localNote, panel, pill, problemBox, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';
import { overrideDialog } from './entries.js';
import { gauge } from './gauges.js';
import { history } from './history.js';
import { holders } from './holders.js';

export async function keys(ctx) {
  const wanted = { rule: ctx.params.get('rule') || '', key: ctx.params.get('key') || '', tier: ctx.params.get('tier') || '' };
  const names = await namesOf(ctx.signal);
  const result = h('div', { class: 'stack', testid: 'key' });
  put(ctx.root, h('div', { class: 'title' }, ctx.head), finder(names, wanted), result);
  if (wanted.key && !wanted.rule) {
    await search(ctx, wanted.key, result);
    return;
  }
  if (!wanted.key) {
    put(result, h('section', { class: 'panel' }, empty(t('keys.none'), t('keys.none.text'), link('offenders', t('keys.none.link')))));
    return;
  }
  show(ctx, wanted, result);
}

function finder(names, wanted) {
  const rule = h('select', { id: 'find-rule', testid: 'input-rule' }, h('option', { value: '', selected: !wanted.rule }, t('keys.allrules')), names.map((n) => h('option', { value: n, selected: n === wanted.rule }, n)));
  const key = h('input', { id: 'find-key', testid: 'input-key', value: wanted.key, required: true, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', class: 'mono', placeholder: '203.0.113.9' });
  const tier = h('input', { id: 'find-tier', testid: 'input-tier', value: wanted.tier, spellcheck: 'false', autocomplete: 'off' });
  const find = (event) => {
    event.preventDefault();
    location.hash = href(['keys', { rule: rule.value, key: key.value, tier: tier.value }]).slice(1);
  };
  return h('form', { class: 'panel pad-all row', on: { submit: find } },
    h('div', { class: 'field' }, h('label', { for: 'find-rule' }, t('col.rule')), rule),
    h('div', { class: 'field two' }, h('label', { for: 'find-key' }, t('col.key')), key),
    h('div', { class: 'field' }, h('label', { for: 'find-tier' }, t('field.tier')), tier),
    h('button', { type: 'submit', class: 'primary', testid: 'btn-find' }, t('keys.find')));
}

// search lists the keys that contain a text, of all rules: those that are known of the last two weeks.
async function search(ctx, text, result) {
  const answers = await Promise.all(['use', 'refusals'].map((by) => get('v1/offenders' + query({ of: 'keys', by, since: '14d', contains: text, limit: 100 }), { signal: ctx.signal })));
  const found = new Map();
  answers.forEach((answer, i) => answer.offenders.forEach((o) => {
    const id = `${o.rule}\u0000${keyText(o.key)}`;
    found.set(id, { ...(found.get(id) || { ...o, use: 0, refusals: 0 }), [i ? 'refusals' : 'use']: o.count });
  }));
  const list = table({
    label: t('keys.found'),
    id: (o) => `${o.rule}\u0000${keyText(o.key)}`,
    name: 'found',
    empty: empty(t('keys.notfound'), t('keys.notfound.text')),
    columns: [
      { name: 'key', title: t('col.key'), grow: true, cell: (o) => (o.hashed ? h('span', { class: 'mono' }, keyText(o.key)) : link(['keys', { rule: o.rule, key: keyText(o.key) }], keyText(o.key), { class: 'mono', title: keyText(o.key) })) },
      { name: 'rule', title: t('col.rule'), cell: (o) => link(['rules', { rule: o.rule }], o.rule) },
      { name: 'use', title: t('by.use'), num: true, sort: (o) => o.use, cell: (o) => count(o.use) },
      { name: 'refusals', title: t('by.refusals'), num: true, sort: (o) => o.refusals, cell: (o) => count(o.refusals) },
    ],
  });
  list.set([...found.values()].sort((a, b) => b.refusals - a.refusals || b.use - a.use));
  put(result, panel(t('keys.found'), null, h('div', {}, h('p', { class: 'pad muted' }, t('keys.found.text')), list.node)));
}

async function show(ctx, wanted, result) {
  const body = given({ rule: wanted.rule, key: readKey(wanted.key), tier: wanted.tier });
  const trouble = h('div');
  const state = h('div');
  const gauges = h('div', { class: 'gauges' });
  const actions = h('div', { class: 'buttons' });
  const holds = holders(given({ rule: wanted.rule, key: body.key }), () => read().catch((error) => say(error.message, 'bad')));
  let drawn = new Map();
  let last = '';
  put(result, trouble,
    panel(keyText(body.key), link(['rules', { rule: wanted.rule }], wanted.rule), h('div', { class: 'pad stack' }, state, gauges, actions)),
    holds.node,
    panel(t('history.title'), null, history({ of: 'keys', by: 'use', rule: wanted.rule, key: keyText(body.key) }, ctx.signal)),
    panel(t('history.refusals'), null, history({ of: 'keys', by: 'refusals', rule: wanted.rule, key: keyText(body.key) }, ctx.signal)));

  function draw(s) {
    const next = new Map();
    const nodes = s.limits.map((limit, i) => {
      const id = `${i} ${limit.tier || ''} ${limit.limit}`;
      const g = drawn.get(id) || gauge(limit);
      next.set(id, g);
      g.set(limit);
      return g.node;
    });
    if ([...next.keys()].join() !== [...drawn.keys()].join()) put(gauges, nodes);
    drawn = next;
    holds.set(s.limits);
    put(state, localNote(s), facts(s));
    const now = JSON.stringify([s.ban, s.override, s.penalty?.ban_left_us > 0, s.penalty?.violations > 0]);
    if (now !== last) put(actions, buttons(s, body, read));
    last = now;
  }

  async function read() {
    try {
      draw(await post('v1/keys/show', body, { signal: ctx.signal }));
    } catch (error) {
      if (error.status >= 400 && error.status < 500) put(gauges);
      throw error;
    }
  }
  ctx.every(1_000, read, trouble);
}

// facts are what matters about the key beside its counts, its bans first.
function facts(s) {
  const parts = [];
  if (s.ban) parts.push(pill(s.ban.until ? t('key.banned', { span: until(s.ban.until) }) : t('key.banned.always'), 'bad'), h('span', { class: 'muted', title: exact(s.ban.at) }, [s.ban.author, s.ban.reason].filter(Boolean).join(': ')));
  if (s.penalty?.ban_left_us) parts.push(pill(t('key.penalty', { span: span(s.penalty.ban_left_us) }), 'bad'));
  if (s.mode !== 'enforce') parts.push(pill(t('key.mode', { mode: t(`mode.${s.mode}`) }), 'warn'));
  if (s.penalty) parts.push(h('span', { class: 'muted num' }, t('key.violations', { n: s.penalty.violations, bans: s.penalty.bans })));
  if (s.override) parts.push(pill(t('key.override'), 'accent'), code(s.override.times ? `× ${s.override.times}` : (s.override.limits || []).join(', ')));
  return parts.length ? h('div', { class: 'buttons', testid: 'key-facts' }, parts) : null;
}

function buttons(s, body, read) {
  const act = async (options) => {
    if (await ask(options)) read().catch((error) => say(error.message, 'bad'));
  };
  const target = { rule: body.rule, key: body.key };
  const change = (path, title, text, message, fields = [], extra = (v) => v) => act({
    title, body: h('p', { class: 'muted' }, text), fields: [...fields, reason()], submit: title,
    run: async (v) => {
      const answer = await post(path, given({ ...target, ...extra(v) }));
      done(message, answer);
      return true;
    },
  });
  return [
    s.ban || s.penalty?.ban_left_us || s.penalty?.violations
      ? writeButton('lift', t('key.lift'), () => change('v1/bans/lift', t('key.lift'), t('key.lift.text'), t('bans.lifted')))
      : null,
    s.ban ? null : writeButton('ban', t('key.ban'), () => change('v1/bans', t('key.ban'), t('key.ban.text', { rule: body.rule }), t('bans.added'), [term()])),
    writeButton('reset', t('key.reset'), () => change('v1/keys/reset', t('key.reset'), t('key.reset.text'), t('key.reset.done'), [], (v) => ({ ...v, tier: body.tier }))),
    writeButton('refund', t('key.refund'), () => change('v1/keys/refund', t('key.refund'), t('key.refund.text'), t('key.refund.done'),
      [{ name: 'cost', label: t('field.cost'), type: 'number', min: 1, value: 1, required: true }], (v) => ({ ...v, tier: body.tier, cost: Number(v.cost) }))),
    writeButton('override', t('key.giveoverride'), async () => (await overrideDialog(target)) && read().catch(problemBox)),
    s.override ? writeButton('remove-override', t('override.remove'), () => act({
      title: t('override.remove'), fields: [reason()], submit: t('remove'), danger: true,
      run: async (v) => {
        done(t('override.removed'), await call('DELETE', `v1/overrides/${encodeURIComponent(s.override.id)}?` + new URLSearchParams(given(v))));
        return true;
      },
    })) : null,
  ];
}

