// One rule: its text, its mode, its last minutes, and the keys that it refuses.
import { get, query } from '../api.js';
import { timeChart } from '../chart.js';
import { h, put, setText } from '../dom.js';
import { count, keyText, rate, rateTick } from '../format.js';
import { code, empty, facts, href, link, panel, totals, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';
import { overrideTable } from './entries.js';
import { history } from './history.js';
import { modeSwitch } from './mode.js';

export async function rule(ctx, name) {
  const body = h('div', { class: 'stack' });
  const mode = h('div');
  ctx.head.replaceChildren(link('rules', t('nav.rules')), ' / ', h('span', { testid: 'rule-name' }, name));
  put(ctx.root, h('div', { class: 'title' }, ctx.head, mode), body);
  const inForce = await get('v1/rules', { signal: ctx.signal });
  const r = inForce.rules.find((one) => one.name === name);
  if (!r) {
    put(body, empty(t('rule.none', { name }), t('rule.none.text'), link('rules', t('rule.back'))));
    return;
  }
  const chart = timeChart({
    label: t('rule.flow'), format: rate, tick: rateTick, height: 180, seconds: 900,
    series: [{ name: t('col.applied'), color: 'accent', fill: 'f-allowed' }, { name: t('col.refused'), color: 'bad', fill: 'f-limited' }],
  });
  ctx.signal.addEventListener('abort', chart.destroy);
  const trouble = h('div');
  const fileMode = h('span');
  const holds = h('span', { class: 'num', testid: 'rule-holds' }, '0');
  ctx.onLive(({ last }) => last && setText(holds, count((last.rules || []).find((one) => one.name === name)?.holds || 0)));
  const keys = worst(name);
  const overrides = overrideTable(ctx.refresh);
  put(body,
    trouble,
    h('div', { class: 'grid two-one' },
      panel(t('rule.flow'), t('overview.minutes', { n: 15 }), chart.node),
      panel(t('rule.text'), null, h('div', { class: 'pad' }, facts([
        [t('col.limits'), r.limits.map((l) => h('div', {}, code(l)))],
        [t('rule.key'), code(r.key)],
        [t('rule.match'), r.match ? code(r.match) : t('rule.match.all')],
        [t('rule.cost'), r.cost && code(r.cost)],
        [t('rule.costafter'), r.cost_after && code(r.cost_after)],
        [t('rule.unit'), r.unit],
        [t('rule.holds'), r.holds && holds],
        [t('rule.mode.file'), fileMode],
        ...(r.settings || []).map((s) => [h('code', {}, s.name), code(s.value)]),
      ])))),
    h('div', { class: 'grid halves' },
      panel(t('history.title'), null, history({ of: 'rules', by: 'use', name }, ctx.signal)),
      panel(t('history.refusals'), null, history({ of: 'rules', by: 'refusals', name }, ctx.signal))),
    h('div', { class: 'grid halves' },
      panel(t('rule.keys'), link(['offenders', { rule: name }], t('all')), keys.node),
      panel(t('rule.overrides'), null, overrides.node,
        h('div', { class: 'pad buttons' },
          writeButton('find-key', t('rule.findkey'), () => { location.hash = href(['keys', { rule: name }]).slice(1); })))));
  ctx.every(5_000, async () => {
    const sw = (await get('v1/switches', { signal: ctx.signal })).rules.find((s) => s.name === name);
    if (!sw || mode.dataset.now === JSON.stringify(sw)) return;
    mode.dataset.now = JSON.stringify(sw);
    put(mode, modeSwitch(name, sw, ctx.refresh));
    put(fileMode, t(`mode.${sw.file}`));
  }, trouble);
  ctx.every(5_000, async () => {
    const series = await get('v1/series' + query({ rule: name }), { signal: ctx.signal });
    const [all, refused] = totals(series);
    const end = Date.parse(series.until) / 1000;
    chart.set(all.map((_, i) => end - (all.length - 1 - i) * series.step_s), [all, refused]);
  }, trouble);
  ctx.every(10_000, async () => keys.set((await get('v1/offenders' + query({ rule: name, limit: 10 }), { signal: ctx.signal })).offenders), trouble);
  ctx.every(30_000, async () => overrides.set((await get('v1/overrides', { signal: ctx.signal })).overrides.filter((o) => o.rule === name)), trouble);
}

function worst(name) {
  return table({
    label: t('rule.keys'),
    id: (o) => keyText(o.key),
    empty: empty(t('offenders.none'), t('offenders.none.text')),
    columns: [
      { name: 'key', title: t('col.key'), grow: true, cell: (o) => (o.hashed ? code(keyText(o.key)) : link(['keys', { rule: name, key: keyText(o.key) }], keyText(o.key), { class: 'mono', title: keyText(o.key) })) },
      { name: 'count', title: t('by.refusals'), num: true, cell: (o) => count(o.count) },
    ],
  });
}
