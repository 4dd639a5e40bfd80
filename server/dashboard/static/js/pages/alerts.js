// The alerts of the rules file, the keys that they were about, and the silences.
import { call, get, given, post, query } from '../api.js';
import { ask, done, reason, term } from '../dialog.js';
import { h, put, setText } from '../dom.js';
import { ago, exact, keyText, percent, span, until } from '../format.js';
import { code, empty, link, panel, pill, writeButton } from '../parts.js';
import { table } from '../table.js';
import { maybe, t } from '../text.js';

const sample = 'alerts:\n  - name: login-refusals\n    when: block_rate("login") > 0.1\n    for: 5m\n    severity: critical\n  - name: api-quota\n    when: usage > 80% of api\n    severity: info';
const stateKind = { firing: 'bad', pending: 'warn', unknown: '', ok: 'good' };
const order = ['firing', 'pending', 'unknown', 'ok'];

export function alerts(ctx) {
  const trouble = h('div');
  const evaluator = h('span');
  const unsent = h('div');
  const told = h('div');
  const list = table({
    label: t('nav.alerts'),
    id: (a) => a.name,
    empty: empty(t('alerts.none'), t('alerts.none.text'), h('pre', { class: 'code-box', tabindex: 0 }, sample)),
    columns: [
      { name: 'state', title: t('alerts.state'), sort: rank, cell: state },
      { name: 'name', title: t('alerts.name'), grow: 'wrap', sort: (a) => a.name, cell: (a) => [h('div', {}, h('span', { class: 'strong' }, a.name), a.message ? h('span', { class: 'muted' }, ' ', a.message) : null, a.silence ? [' ', pill(t('alerts.silenced'))] : null, a.error ? [' ', pill(t('alerts.notsent'), 'warn')] : null), h('code', { testid: 'alert-when' }, a.when, a.for ? ` for ${a.for}` : '')] },
      { name: 'value', title: t('alerts.value'), num: true, cell: value },
      { name: 'since', title: t('alerts.since'), num: true, opt: true, cell: (a) => (a.since ? h('span', { title: exact(a.since) }, ago(a.since)) : '–') },
      { name: 'sent', title: t('alerts.sent'), opt: true, cell: (a) => (a.delivered ? h('span', { title: exact(a.delivered.at) }, t('alerts.sent.by', { by: a.delivered.by, of: a.delivered.of, ago: ago(a.delivered.at) })) : '–') },
      { name: 'severity', title: t('alerts.severity'), opt: true, cell: (a) => a.severity },
      { name: 'act', title: '', act: true, cell: (a) => (a.silence ? null : writeButton('silence', t('alerts.silence'), () => silence(a.name, ctx.refresh), { class: 'small' })) },
    ],
  });
  const past = table({
    label: t('alerts.past'),
    id: (f) => `${f.alert}\u0000${f.fired}`,
    name: 'firing',
    empty: empty(t('alerts.past.none'), t('alerts.past.none.text')),
    columns: [
      { name: 'alert', title: t('alerts.alert'), grow: true, cell: (f) => h('span', { class: 'clip' }, f.alert) },
      { name: 'fired', title: t('alerts.fired'), num: true, cell: (f) => h('span', { title: exact(f.fired) }, ago(f.fired)) },
      { name: 'lasted', title: t('alerts.lasted'), num: true, cell: (f) => (f.resolved ? span(1000 * (Date.parse(f.resolved) - Date.parse(f.fired))) : pill(t('alert.firing'), 'bad')) },
    ],
  });
  const quiet = table({
    label: t('silences'),
    id: (s) => s.id,
    name: 'silence',
    empty: empty(t('silences.none'), t('silences.none.text')),
    columns: [
      { name: 'alert', title: t('alerts.alert'), cell: (s) => s.alert || t('silences.all') },
      { name: 'why', title: t('col.why'), grow: true, cell: (s) => h('span', { title: s.reason }, [s.author, s.reason].filter(Boolean).join(': ')) },
      { name: 'left', title: t('col.left'), num: true, cell: (s) => h('span', { title: exact(s.until) }, until(s.until)) },
      { name: 'act', title: '', act: true, cell: (s) => writeButton('unsilence', t('silences.end'), () => unsilence(s, ctx.refresh), { class: 'small' }) },
    ],
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head, writeButton('silence-all', t('alerts.silence.all'), () => silence('', ctx.refresh))), trouble, unsent,
    panel(t('alerts.title'), evaluator, list.node), told,
    panel(t('alerts.past'), null, past.node),
    panel(t('silences'), null, quiet.node));
  return ctx.every(5_000, async () => {
    const [answer, silences] = await Promise.all([get('v1/alerts', { signal: ctx.signal }), get('v1/silences', { signal: ctx.signal })]);
    list.set([...answer.alerts].sort((a, b) => rank(a) - rank(b)));
    setText(evaluator, answer.alerts.length ? (answer.evaluator ? t('alerts.evaluator', { id: answer.evaluator }) : t('alerts.noevaluator')) : '');
    put(unsent, [...new Set(answer.alerts.map((a) => a.error).filter(Boolean))].map((error) => h('div', { class: 'notice warn' }, t('alerts.notsent.text'), ' ', error)));
    quiet.set(silences.silences);
    showKeys(answer.alerts, told);
    past.set(answer.alerts.flatMap((a) => (a.past || []).map((f) => ({ ...f, alert: a.name }))).sort((a, b) => Date.parse(b.fired) - Date.parse(a.fired)));
  }, trouble);
}

// rank is the place of an alert in the list; one that keys have fired comes after those that fire.
const rank = (a) => (a.keys?.length ? 0.5 : order.indexOf(a.state));

// state is that of an alert about a condition, or for how many keys one about keys has fired, which
// are in the table below: each of them fires once, and is not resolved.
function state(a) {
  if (a.keys?.length) return pill(t('alert.keys', { n: a.keys.length }), 'warn');
  if (a.state === 'firing' && a.unknown) return pill(t('alert.stale'), 'bad');
  return pill(maybe(`alert.${a.state}`, a.state), stateKind[a.state]);
}

// value is what the condition compares first, or of an alert about keys the greatest use that was
// reported.
function value(a) {
  if (a.keys?.length) return percent(Math.max(...a.keys.map((k) => k.usage)));
  if (a.value === undefined || a.value === null) return '–';
  return h('span', { title: a.measured }, Number(a.value.toPrecision(3)));
}

let shownKeys = '';

function showKeys(all, told) {
  const rows = all.flatMap((a) => (a.keys || []).map((k) => ({ ...k, alert: a.name })));
  const now = JSON.stringify(rows);
  if (now === shownKeys && told.firstChild) return;
  shownKeys = now;
  if (!rows.length) {
    put(told);
    return;
  }
  const grid = table({
    label: t('alerts.keys'),
    id: (k) => `${k.alert}\u0000${k.rule}\u0000${keyText(k.key)}`,
    name: 'key',
    columns: [
      { name: 'key', title: t('col.key'), grow: true, cell: (k) => link(['keys', { rule: k.rule, key: keyText(k.key) }], keyText(k.key), { class: 'mono', title: keyText(k.key) }) },
      { name: 'rule', title: t('col.rule'), opt: true, cell: (k) => h('span', { class: 'clip' }, k.rule) },
      { name: 'alert', title: t('alerts.alert'), cell: (k) => h('span', { class: 'clip' }, k.alert) },
      { name: 'usage', title: t('alerts.usage'), num: true, cell: (k) => percent(k.usage) },
      { name: 'at', title: t('col.time'), num: true, cell: (k) => h('span', { title: exact(k.at) }, ago(k.at)) },
    ],
  });
  grid.set(rows);
  put(told, panel(t('alerts.keys'), null, grid.node));
}

async function silence(alert, changed) {
  const ok = await ask({
    title: alert ? t('silence.title', { name: alert }) : t('silence.title.all'),
    body: h('p', { class: 'muted' }, t('silence.text'), alert ? [' ', code(alert)] : null),
    fields: [{ ...term('1h'), required: true, hint: t('silence.for.hint') }, reason()],
    submit: t('alerts.silence'),
    run: async (v) => {
      done(t('silence.done'), await post('v1/silences', given({ alert, ...v })));
      return true;
    },
  });
  if (ok) changed();
}

async function unsilence(s, changed) {
  const ok = await ask({
    title: t('silences.end.ask'),
    fields: [reason()],
    submit: t('silences.end'),
    run: async (v) => {
      done(t('silences.ended'), await call('DELETE', `v1/silences/${encodeURIComponent(s.id)}` + query(given(v))));
      return true;
    },
  });
  if (ok) changed();
}
