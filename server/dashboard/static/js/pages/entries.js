// Entries that were added at run time: overrides, and those of the safelist and blocklist.
import { call, get, given, namesOf, post, query } from '../api.js';
import { ask, done, reason, term } from '../dialog.js';
import { h, put } from '../dom.js';
import { exact, keyText, readKey, until } from '../format.js';
import { code, empty, link, panel, pill, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

// left is a column with the time until an entry ends.
export const left = () => ({
  name: 'until', title: t('col.left'), num: true, sort: (e) => (e.until ? Date.parse(e.until) : Infinity),
  cell: (e) => h('span', { title: e.until ? exact(e.until) : null }, e.until ? until(e.until) : t('entry.always')),
});

// why is a column with author and reason of an entry.
export const why = () => ({
  name: 'why', title: t('col.why'), grow: true, opt: true,
  cell: (e) => h('span', { title: `${exact(e.at)} ${e.reason || ''}` }, e.problem ? [pill(t('entry.problem'), 'warn'), ' ', e.problem] : [h('span', { class: 'muted' }, e.author), e.author && e.reason ? ': ' : '', e.reason]),
});

// removal is a column with a button that ends an entry after a question.
export const removal = (path, changed) => ({
  name: 'act', title: '', act: true,
  cell: (e) => writeButton('remove', t('remove'), async () => {
    const ok = await ask({
      title: t('entry.remove'), fields: [reason()], submit: t('remove'), danger: true,
      run: async (v) => {
        done(t('entry.removed'), await call('DELETE', `${path}/${encodeURIComponent(e.id)}` + query(given(v))));
        return true;
      },
    });
    if (ok) changed();
  }, { class: 'small' }),
});

export function overrideTable(changed) {
  return table({
    label: t('bans.overrides'),
    id: (o) => o.id,
    empty: empty(t('overrides.none'), t('overrides.none.text')),
    columns: [
      { name: 'rule', title: t('col.rule'), opt: true, cell: (o) => link(['rules', { rule: o.rule }], o.rule, { class: 'clip' }) },
      { name: 'for', title: t('overrides.for'), cell: (o) => (o.tier ? pill(t('tier', { name: o.tier })) : link(['keys', { rule: o.rule, key: keyText(o.key) }], keyText(o.key), { class: 'mono clip' })) },
      { name: 'what', title: t('col.limits'), cell: (o) => code(o.times ? `× ${o.times}` : (o.limits || []).join(', ')) },
      why(),
      left(),
      removal('v1/overrides', changed),
    ],
  });
}

// overrideDialog asks for other limits of target, or of what the user names if it is null.
export async function overrideDialog(target, signal) {
  const names = target ? [] : await namesOf(signal);
  return ask({
    title: target ? t('override.title', { key: keyText(target.key) }) : t('override.add'),
    body: h('p', { class: 'muted' }, t('override.text')),
    fields: [
      ...(target ? [] : [
        { name: 'rule', label: t('col.rule'), type: 'select', options: names.map((n) => [n, n]) },
        { name: 'key', label: t('col.key') },
        { name: 'tier', label: t('field.tier'), hint: t('field.tier.hint') },
      ]),
      { name: 'times', label: t('override.times'), type: 'number', min: 1, hint: t('override.times.hint') },
      { name: 'limits', label: t('override.limits'), type: 'textarea', rows: 2, hint: t('override.limits.hint'), placeholder: '1000 per 1m' },
      term(),
      reason(),
    ],
    submit: t('set'),
    run: async (v) => {
      const answer = await post('v1/overrides', given({
        rule: target?.rule ?? v.rule,
        key: target ? target.key : v.key && readKey(v.key),
        tier: v.tier,
        times: v.times && Number(v.times),
        limits: v.limits ? v.limits.split('\n').map((l) => l.trim()).filter(Boolean) : '',
        for: v.for,
        reason: v.reason,
      }));
      done(t('override.done'), answer);
      return true;
    },
  });
}

// overrides is the part of the page of bans with all overrides.
export function overrides(ctx, top) {
  const trouble = h('div');
  const grid = overrideTable(ctx.refresh);
  const add = async () => (await overrideDialog(null, ctx.signal)) && ctx.refresh();
  put(ctx.root, h('div', { class: 'title' }, ctx.head, writeButton('add-override', t('override.add'), add, { class: 'primary' })), top, trouble,
    panel(t('bans.overrides'), null, grid.node));
  return ctx.every(10_000, async () => grid.set((await get('v1/overrides', { signal: ctx.signal })).overrides), trouble);
}

// list is the part with the entries of the safelist or of the blocklist.
export function list(ctx, top, name) {
  const trouble = h('div');
  const grid = table({
    label: t(`bans.${name}`),
    id: (e) => e.id,
    empty: empty(t('list.none'), t(`list.${name}.text`)),
    columns: [
      { name: 'what', title: t('col.entry'), grow: true, cell: (e) => h('code', { title: e.network || e.match }, e.network || e.match) },
      why(),
      left(),
      removal(`v1/lists/${name}`, ctx.refresh),
    ],
  });
  const add = async () => {
    const ok = await ask({
      title: t(`list.${name}.add`),
      body: h('p', { class: 'muted' }, t(`list.${name}.text`)),
      fields: [
        { name: 'network', label: t('field.network'), hint: t('field.network.hint') },
        { name: 'match', label: t('field.match'), hint: t('field.match.hint') },
        term(''), reason(),
      ],
      submit: t('add'),
      run: async (v) => {
        done(t('entry.added'), await post(`v1/lists/${name}`, given(v)));
        return true;
      },
    });
    if (ok) ctx.refresh();
  };
  put(ctx.root, h('div', { class: 'title' }, ctx.head, writeButton('add-entry', t(`list.${name}.add`), add, { class: 'primary' })), top, trouble,
    panel(t(`bans.${name}`), t('list.runtime'), grid.node));
  return ctx.every(10_000, async () => grid.set((await get(`v1/lists/${name}`, { signal: ctx.signal })).entries), trouble);
}
