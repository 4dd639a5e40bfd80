// The rules: how busy each is, its mode, and the ways to one rule, the editor and the versions.
import { call, get, query } from '../api.js';
import { ask, done, reason } from '../dialog.js';
import { h, put } from '../dom.js';
import { rate } from '../format.js';
import { empty, link, pill, spark, tabs, totals, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';
import { editor } from './editor.js';
import { modeMenu } from './mode.js';
import { rule } from './rule.js';
import { versions } from './versions.js';

const sparks = 60; // rules whose line is drawn; each is a call

export function rulesTabs(at) {
  return tabs(t('nav.rules'), [['rules', t('rules.inforce'), 'list'], ['rules/edit', t('rules.edit'), 'edit'], ['rules/versions', t('rules.versions'), 'versions']], at);
}

export function rules(ctx) {
  if (ctx.sub === 'edit') return editor(ctx, rulesTabs('edit'));
  if (ctx.sub === 'versions') return versions(ctx, rulesTabs('versions'));
  if (ctx.params.get('rule')) return rule(ctx, ctx.params.get('rule'));
  return list(ctx);
}

function list(ctx) {
  const trouble = h('div');
  const source = h('p', { class: 'muted' });
  const kill = h('div');
  const lines = new Map(); // name → [all, refused] of the last minutes
  let live = new Map();
  let shown = null; // until the server has said which rules there are
  const grid = table({
    label: t('nav.rules'),
    id: (r) => r.name,
    empty: empty(t('rules.none'), t('rules.none.text')),
    columns: [
      { name: 'name', title: t('col.rule'), sort: (r) => r.name, cell: (r) => link(['rules', { rule: r.name }], r.name, { class: 'clip', title: r.name }) },
      { name: 'mode', title: t('col.mode'), cell: (r) => modeMenu(r, ctx.refresh) },
      { name: 'limits', title: t('col.limits'), grow: true, opt: true, cell: (r) => h('span', { class: 'mono', title: r.limits.join('\n') }, r.limits.join(', ')) },
      { name: 'applied', title: t('col.applied'), num: true, sort: (r) => r.applied, cell: (r) => rate(r.applied) },
      { name: 'refused', title: t('col.refused'), num: true, sort: (r) => r.refused, cell: (r) => (r.mode.now === 'shadow' && r.refused > 0 ? h('span', { class: 'muted' }, t('rules.would', { rate: rate(r.refused) })) : rate(r.refused)) },
      { name: 'spark', title: t('col.spark'), opt: true, cell: (r) => (r.line ? spark(...r.line, t('rules.spark', { name: r.name })) : null) },
    ],
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head, kill), rulesTabs('list'), source, trouble, h('section', { class: 'panel' }, grid.node));

  function show() {
    if (!shown) return;
    grid.set(shown.map((r) => {
      const line = lines.get(r.name);
      const now = live.get(r.name) || { applied: line?.[0].at(-1) || 0, refused: line?.[1].at(-1) || 0 };
      return { ...r, applied: now.applied, refused: now.refused, line };
    }));
  }

  let version = '';
  async function read() {
    const [inForce, switches] = await Promise.all([get('v1/rules', { signal: ctx.signal }), get('v1/switches', { signal: ctx.signal })]);
    const modes = new Map(switches.rules.map((s) => [s.name, s]));
    shown = inForce.rules.map((r) => ({ ...r, mode: modes.get(r.name) || { now: r.mode, file: r.mode, set: null } }));
    put(source, inForce.number ? t('rules.source.fleet', { n: inForce.number, version: inForce.version }) : t('rules.source.file', { version: inForce.version }), inForce.rules.some((r) => r.descriptor) ? [' ', t('rules.source.envoy')] : null,
      inForce.newest > inForce.number ? h('span', { class: 'warn' }, ' ', t('rules.newer', { n: inForce.newest })) : null);
    if (kill.dataset.now !== String(switches.enabled.now)) put(kill, killSwitch(switches, ctx.refresh));
    kill.dataset.now = switches.enabled.now;
    show();
  }
  ctx.every(10_000, read, trouble);
  ctx.onLive(({ last }) => {
    if (!last) return;
    live = new Map((last.rules || []).map((r) => [r.name, r]));
    const now = `${last.version} ${last.controls}`;
    if (version && version !== now) read().catch(() => {});
    version = now;
    show();
  });
  ctx.every(30_000, async () => {
    if (!shown) await read();
    for (const { name } of shown.slice(0, sparks)) {
      lines.set(name, totals(await get('v1/series' + query({ rule: name }), { signal: ctx.signal })));
      show();
    }
  });
}

function killSwitch(switches, changed) {
  const on = switches.enabled.now;
  const turn = async () => {
    const ok = await ask({
      title: on ? t('kill.off.ask') : t('kill.on.ask'),
      body: h('p', { class: 'muted' }, on ? t('kill.off.text') : t('kill.on.text')),
      fields: [reason()],
      submit: on ? t('kill.off') : t('kill.on'),
      danger: on,
      run: async (v) => {
        done(t('kill.done'), await call('PATCH', 'v1/switches', { enabled: !on, reason: v.reason }));
        return true;
      },
    });
    if (ok) changed();
  };
  return h('div', { class: 'buttons', testid: 'kill-switch' },
    on ? pill(t('kill.is.on'), 'good') : pill(t('kill.is.off'), 'bad'),
    writeButton(on ? 'kill' : 'unkill', on ? t('kill.off') : t('kill.on'), turn, { class: on ? 'danger' : 'primary' }));
}
