// The overview: is the limiter healthy, what does it refuse, whom, and what to press.
import { get, post } from '../api.js';
import { timeChart } from '../chart.js';
import { h, put, setText } from '../dom.js';
import { clock, count, exact, keyText, micros, microsTick, rate, rateTick } from '../format.js';
import { empty, link, panel, pill, refusals, sums, writeButton } from '../parts.js';
import { table } from '../table.js';
import { maybe, t } from '../text.js';
import { healthLine } from './health.js';
import { history } from './history.js';
import { meanOf, tiles } from './tiles.js';

const minutes = 15;
const recent = '15m'; // since when keys are counted; the server rounds to ten minutes of the clock
const calm = 60; // s without a refusal, after which refusing begins anew
const smooth = 10; // s of which the numbers at the top are the mean, so that they can be read
const fresh = 20_000; // ms for which it is known whether a key is banned
const gap = 5_000; // ms between two events, from which on the past is read again

// The order of the outcomes in the chart, from the bottom up.
const stack = ['undecided', 'overloaded', 'blocked', 'banned', 'warned', 'limited', 'unmatched', 'safe', 'allowed'];

// The outcomes that are drawn with lines as well, since colour alone tells no reds apart: with
// lines in which directions, in degrees. parts.css does the same for the legend.
const hatches = { warned: [90], banned: [45], blocked: [45, -45], undecided: [0] };

export function overview(ctx) {
  const top = healthLine();
  const findings = h('div', { class: 'findings' });
  const cells = tiles();
  const flow = flowChart();
  const speed = speedChart();
  const rules = busiest();
  const keys = offenders(ctx);
  const fleet = instances();
  put(ctx.root, h('div', { class: 'title' }, ctx.head), top.node, findings, cells.node,
    h('div', { class: 'grid three' },
      panel(keys.title, link(['offenders', { since: recent }], t('all')), keys.node),
      panel(t('overview.rules'), link('rules', t('all')), rules.node),
      panel(t('overview.instances'), null, fleet.node)),
    h('div', { class: 'grid two-one' },
      panel(t('overview.flow'), t('overview.minutes', { n: minutes }), h('div', { class: 'beside' }, flow.node, flow.list)),
      panel(t('overview.speed'), h('span', { class: 'legend' }, h('i', { class: 'dash p50' }), 'p50', h('i', { class: 'dash p99' }), 'p99'), speed.node)),
    panel(t('history.refusals'), null, history({ of: 'rules', by: 'refusals' }, ctx.signal)));
  ctx.signal.addEventListener('abort', () => [flow, speed].forEach((c) => c.destroy()));

  const past = async () => {
    const series = await get('v1/series', { signal: ctx.signal });
    flow.start(series);
    speed.start(series);
  };
  let firing = 0;
  let seen = 0; // the moment of the last event
  const mean = meanOf(smooth);
  const known = { status: null, alerts: null, worst: null, since: null };
  let shown = null;
  ctx.onLive((live) => {
    shown = live;
    known.since = flow.refusing();
    if (live.last && live.last.firing !== firing) {
      firing = live.last.firing;
      ctx.refresh(); // which alerts they are
    }
    if (live.last) mean.add(live.last);
    top.set(live, mean, known);
    if (!live.last) return;
    cells.set(live.last, mean, known.status);
    rules.set(live.last.rules || []);
    if (live.state === 'live') {
      const at = Date.parse(live.last.at);
      if (at - seen > gap) past().catch(() => {});
      seen = at;
      flow.add(live.last);
      speed.add(live.last);
    }
  });
  ctx.every(10_000, async () => {
    [known.status, known.alerts] = await Promise.all([get('v1/status', { signal: ctx.signal }), get('v1/alerts', { signal: ctx.signal })]);
    top.set(shown, mean, known);
    put(findings, known.status.findings.map((f) => h('div', { class: 'notice' }, pill(f.code), ' ', f.where ? h('code', {}, f.where) : null, ' ', f.text)));
    if (shown.last) cells.set(shown.last, mean, known.status);
    if (shown.state !== 'live') await past(); // the charts do without the stream
  });
  ctx.every(5_000, async () => fleet.set(await get('v1/instances', { signal: ctx.signal })));
  ctx.every(5_000, async () => {
    known.worst = await get(`v1/offenders?limit=6&since=${recent}`, { signal: ctx.signal });
    await keys.set(known.worst);
  });
}

// flowChart is decisions a second by outcome: a chart, and a list that is its legend.
function flowChart() {
  const series = [...stack].reverse().map((name) => ({ name: maybe(`outcome.${name}`, name), color: name === 'allowed' ? 'o-allowed' : '', fill: `f-${name}`, hatch: hatches[name], line: `o-${name}` }));
  const chart = timeChart({ label: t('overview.flow'), series, format: rate, tick: rateTick, stacked: true, seconds: minutes * 60, height: 196 });
  const order = [...stack].reverse();
  const list = h('ul', { class: 'outcomes', testid: 'outcomes' });
  let times = [];
  let values = order.map(() => []);
  const draw = () => chart.set(times, values);
  return {
    node: chart.node,
    list,
    destroy: chart.destroy,
    // refusing is since when requests have been refused, without a pause: {at, whole}, in
    // milliseconds; whole if that was so from the beginning of a chart that is full: of a shorter
    // one there is nothing before. null: none is.
    refusing() {
      const rows = order.flatMap((name, k) => (refusals.includes(name) ? [values[k]] : []));
      let at = null;
      for (let i = times.length - 1; i >= 0; i--) {
        if (rows.some((row) => row[i] > 0)) at = times[i];
        else if ((at ?? times.at(-1)) - times[i] > calm) return at && { at: at * 1000, whole: false };
      }
      return at && { at: at * 1000, whole: at - times[0] <= calm && times.at(-1) - times[0] >= minutes * 60 - calm };
    },
    start(s) {
      const n = Math.max(0, ...Object.values(s.outcomes).map((v) => v.length));
      const end = Date.parse(s.until) / 1000;
      const before = Array.from({ length: n }, (_, i) => end - (n - 1 - i) * s.step_s);
      const from = times.findIndex((at) => at > end);
      const tail = from < 0 ? times.length : from;
      values = order.map((name, k) => [...pad(s.outcomes[name], n), ...values[k].slice(tail)]);
      times = [...before, ...times.slice(tail)];
      draw();
    },
    add(live) {
      const at = Date.parse(live.at) / 1000;
      if (times.length && at <= times.at(-1)) return;
      times.push(at);
      order.forEach((name, k) => values[k].push(live.outcomes[name] || 0));
      const old = times.findIndex((x) => x >= at - minutes * 60);
      if (old > 0) {
        times.splice(0, old);
        for (const v of values) v.splice(0, old);
      }
      draw();
      put(list, order.filter((name) => live.outcomes[name] > 0 || name === 'allowed' || name === 'limited').map((name) =>
        h('li', {}, h('i', { class: `swatch ${name}` }), h('span', {}, maybe(`outcome.${name}`, name)), h('b', { class: 'num' }, rate(live.outcomes[name] || 0)))));
    },
  };
}

function speedChart() {
  const chart = timeChart({
    label: t('overview.speed'), format: micros, tick: microsTick, least: 1000, seconds: minutes * 60, height: 196,
    series: [{ name: 'p99', color: 'muted' }, { name: 'p50', color: 'accent' }],
  });
  let times = [];
  let p50 = [];
  let p99 = [];
  return {
    node: chart.node,
    destroy: chart.destroy,
    start(s) {
      const n = s.p50_us.length;
      const end = Date.parse(s.until) / 1000;
      const later = times.findIndex((at) => at > end);
      const tail = later < 0 ? times.length : later;
      times = [...Array.from({ length: n }, (_, i) => end - (n - 1 - i) * s.step_s), ...times.slice(tail)];
      p50 = [...s.p50_us, ...p50.slice(tail)];
      p99 = [...pad(s.p99_us, n), ...p99.slice(tail)];
      chart.set(times, [p99, p50]);
    },
    add(live) {
      const at = Date.parse(live.at) / 1000;
      if (times.length && at <= times.at(-1)) return;
      times.push(at);
      p50.push(live.decide.p50_us);
      p99.push(live.decide.p99_us);
      const old = times.findIndex((x) => x >= at - minutes * 60);
      if (old > 0) [times, p50, p99].forEach((v) => v.splice(0, old));
      chart.set(times, [p99, p50]);
    },
  };
}

// pad fills the start of values, so that there are n.
function pad(values, n) {
  const v = values || [];
  return [...new Array(Math.max(0, n - v.length)).fill(0), ...v];
}

// shadow reports whether a rule only would have refused.
const shadow = (r) => r.applied === 0 && r.refused > 0;

function busiest() {
  const list = table({
    label: t('overview.rules'),
    id: (r) => r.name,
    empty: empty(t('overview.rules.none'), t('overview.rules.none.text')),
    columns: [
      { name: 'rule', title: t('col.rule'), grow: true, cell: (r) => link(['rules', { rule: r.name }], r.name) },
      { name: 'applied', title: t('col.applied'), num: true, cell: (r) => rate(r.applied) },
      { name: 'refused', title: t('col.refused'), num: true, cell: (r) => (shadow(r) ? h('span', { class: 'muted' }, t('rules.would', { rate: rate(r.refused) })) : rate(r.refused)) },
    ],
  });
  return { node: list.node, set: (rows) => list.set(rows.slice(0, 8)) };
}

// ban asks before it bans the key of an offender, and lift before it lifts the bans of one.
async function ban(o, changed) {
  const { banDialog } = await import('./bans.js'); // with all that it imports, so not at the start
  if (await banDialog({ rule: o.rule, key: o.key }, keyText(o.key))) changed();
}

async function lift(o, changed) {
  const { lift: ask } = await import('./bans.js');
  await ask({ rule: o.rule, key: o.key }, changed);
}

const offenderId = (o) => `${o.rule}\u0000${keyText(o.key)}`;

// banStates knows which of a few offenders are banned under their rules, by hand or by penalty. It
// asks for each key alone: a list of all bans may be long, and this page is open on many screens.
function banStates(signal) {
  let known = new Map(); // id → {banned, at}
  return {
    forget: () => known.clear(),
    // of is the list with the state of each.
    async of(all) {
      const now = Date.now();
      const states = await Promise.all(all.map(async (o) => {
        const before = known.get(offenderId(o));
        if (o.hashed || (before && now - before.at < fresh)) return before;
        const s = await post('v1/keys/show', { rule: o.rule, key: o.key }, { signal }).catch(() => null);
        return { banned: Boolean(s && (s.ban || s.penalty?.ban_left_us > 0)), at: now };
      }));
      known = new Map(all.map((o, i) => [offenderId(o), states[i]]));
      return all.map((o, i) => ({ ...o, banned: Boolean(states[i]?.banned) }));
    },
  };
}

function offenders(ctx) {
  const states = banStates(ctx.signal);
  const changed = () => {
    states.forget();
    ctx.refresh();
  };
  const title = h('span', {}, t('overview.offenders'));
  const list = table({
    label: t('overview.offenders'),
    id: offenderId,
    empty: empty(t('offenders.none'), t('offenders.none.text')),
    columns: [
      { name: 'key', title: t('col.key'), grow: true, cell: (o) => [o.hashed ? h('span', { class: 'mono', title: t('offenders.hashed') }, keyText(o.key)) : link(['keys', { rule: o.rule, key: keyText(o.key) }], keyText(o.key), { class: 'mono', title: keyText(o.key) }), o.banned ? [' ', pill(t('bans.is'), 'bad')] : null] },
      { name: 'rule', title: t('col.rule'), cell: (o) => h('span', { class: 'muted clip', title: o.rule }, o.rule) },
      { name: 'count', title: t('by.refusals'), num: true, cell: (o) => count(o.count) },
      { name: 'act', title: '', act: true, cell: (o) => (o.hashed ? null : o.banned ? writeButton('lift', t('bans.lift'), () => lift(o, changed), { class: 'small' }) : writeButton('ban', t('bans.ban'), () => ban(o, changed), { class: 'small' })) },
    ],
  });
  return {
    node: list.node,
    title,
    async set(answer) {
      setText(title, t('overview.offenders.since', { time: clock(answer.since) }));
      list.set(await states.of(answer.offenders));
    },
  };
}

function instances() {
  const list = table({
    label: t('overview.instances'),
    id: (i) => i.id,
    empty: empty(t('instances.none'), t('instances.none.text')),
    columns: [
      { name: 'host', title: t('col.host'), grow: true, cell: (i) => h('span', { title: `${i.id} · ${i.program} · ${exact(i.started)}` }, i.host, i.self ? h('span', { class: 'muted' }, ` ${t('instances.self')}`) : null,
        i.decides === 'store' ? null : [' ', pill(t('decides.fallback'), 'bad')]) },
      { name: 'rules', title: t('col.version'), cell: (i) => h('code', {}, i.version.slice(0, 7)) },
      { name: 'rate', title: t('col.rate'), num: true, cell: (i) => rate(sums(i.outcomes).all) },
      { name: 'p99', title: 'p99', num: true, cell: (i) => micros(i.decide.p99_us) },
    ],
  });
  return { node: list.node, set: (answer) => list.set(answer.instances) };
}
