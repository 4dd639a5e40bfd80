// Whom an amount of a limit would refuse, by the peaks of its keys: a curve, and a slider over it.
import { h, put, setText, svg } from '../dom.js';
import { count, keyText, percent, span } from '../format.js';
import { button, panel, select } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

const steps = 1000; // of the slider, and the width of the curve

// places are where the amounts of a curve stand, from 0 to steps, in their logarithm.
export function places(curve) {
  const log = (a) => Math.log(a + 1);
  const low = log(curve[0][0]);
  const wide = log(curve.at(-1)[0]) - low;
  return curve.map(([amount]) => (wide ? Math.round(((log(amount) - low) / wide) * steps) : 0));
}

// amountAt is where a text has an amount at a place of the API, as an index; -1: it has something else there.
export function amountAt(text, place, amount) {
  const all = text.split('\n');
  const line = all[place.line - 1];
  if (line === undefined) return -1;
  const before = Array.from(line).slice(0, place.column - 1).join('').length;
  const digits = line.slice(before).match(/^\d+/)?.[0];
  if (digits !== String(amount) || /\d/.test(line[before - 1] ?? '')) return -1;
  return all.slice(0, place.line - 1).reduce((n, other) => n + other.length + 1, 0) + before;
}

// peaksBox is for the peaks of a preview. chosen is the id of the limit to show first, choose gets that of another,
// and use gets a limit and its new amount. It returns {node, current(is)}: is the text still that of the preview?
export function peaksBox(p, { chosen, choose, use }) {
  const limits = p.peaks.map((l) => ({ ...l, id: JSON.stringify([l.rule, l.tier, l.index]), name: `${l.rule}${l.tier ? `@${l.tier}` : ''}: ${l.limit}` }));
  const body = h('div', { class: 'pad stack' });
  let isCurrent = true;
  let shown = null;
  const first = limits.find((l) => l.id === chosen) ?? limits.find((l) => !l.unmeasured) ?? limits[0];
  const show = (id) => {
    const limit = limits.find((l) => l.id === id);
    shown = limit.unmeasured || !limit.keys ? null : slider(limit, p, (amount) => use(limit, amount));
    shown?.current(isCurrent);
    put(body, limits.length > 1 ? null : h('p', { class: 'strong' }, limit.name),
      shown ? shown.node : h('p', { class: 'muted', testid: 'unmeasured' }, limit.unmeasured ? t(`peaks.why.${limit.unmeasured}`) : t('peaks.none')),
      p.more_peaks ? h('p', { class: 'hint' }, t('peaks.limits', { n: count(p.more_peaks) })) : null);
  };
  show(first.id);
  const menu = limits.length > 1 ? select(t('peaks.limit'), limits.map((l) => [l.id, l.name]), first.id, (id) => {
    choose(id);
    show(id);
  }, { testid: 'select-limit' }) : null;
  const node = panel(t('peaks.title'), null, menu ? h('div', { class: 'pad peaks-menu' }, menu) : null, body);
  node.dataset.testid = 'peaks';
  return {
    node,
    current(is) {
      isCurrent = is;
      shown?.current(is);
    },
  };
}

// slider shows a limit that has keys. use gets an amount.
function slider(limit, p, use) {
  const { curve, keys, top, suggested } = limit;
  const at = places(curve);
  const text = (amount) => limit.limit.replace(/^\d+/, amount);
  const indexOf = (amount) => curve.findIndex(([a]) => a === amount);
  let i = indexOf(limit.amount);
  let isCurrent = true;

  const mark = svg('line', { class: 'at', y1: 0, y2: 100 });
  const amount = h('div', { class: 'big' });
  const above = h('div', { class: 'muted', testid: 'above' });
  const who = table({
    label: t('peaks.keys'), name: 'peak', id: (k) => keyText(k.key),
    empty: h('p', { class: 'foot-note' }, t('peaks.nobody')),
    columns: [
      { name: 'key', title: t('peaks.keys'), grow: true, cell: (k) => h('span', { class: 'mono', title: keyText(k.key) }, keyText(k.key)) },
      { name: 'peak', title: t('peaks.peak'), num: true, cell: (k) => count(k.peak) },
    ],
  });
  const more = h('p', { class: 'foot-note' });
  const range = h('input', {
    type: 'range', min: 0, max: steps, step: 1, testid: 'slider', 'aria-label': t('peaks.slider', { limit: limit.name }),
    on: { input: () => move(nearest(at, Number(range.value), i)), keydown: key },
  });
  const take = button('use', t('peaks.use'), () => use(curve[i][0]), { class: 'primary' });
  const why = h('p', { class: 'hint' });

  function move(next) {
    i = next;
    const [n, untouched] = curve[i];
    const over = keys - untouched;
    range.value = at[i];
    mark.setAttribute('x1', at[i]);
    mark.setAttribute('x2', at[i]);
    const says = t('peaks.above', { n: count(over), keys: count(keys), share: percent(over / keys) });
    setText(amount, text(n));
    setText(above, says);
    range.setAttribute('aria-valuetext', `${text(n)}: ${says}`);
    const refused = top.filter((k) => k.peak > n);
    who.set(refused);
    setText(more, over > refused.length ? t('peaks.more', { n: count(over - refused.length) }) : '');
    usable();
  }

  function usable() {
    take.disabled = !limit.place || !isCurrent || curve[i][0] === limit.amount;
    setText(why, !limit.place ? t('peaks.noplace') : isCurrent ? '' : t('peaks.changed'));
  }

  function key(event) {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -curve.length, End: curve.length }[event.key];
    if (!by || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    move(Math.min(curve.length - 1, Math.max(0, i + by)));
  }

  const leads = (name, words, n) => button(name, words, () => move(indexOf(n)), { class: 'small' });
  const node = h('div', { class: 'stack' },
    limit.at_least ? h('div', { class: 'notice warn', testid: 'at-least' }, t('peaks.least', { span: span(p.span_us), period: span(limit.period_us) })) : null,
    h('div', { class: 'num' }, amount, above),
    h('div', {}, drawing(limit, at, mark), range, h('div', { class: 'ends muted num', 'aria-hidden': 'true' }, h('span', {}, count(curve[0][0])), h('span', {}, count(curve.at(-1)[0])))),
    h('div', { class: 'buttons' },
      take, leads('amount', t('peaks.amount', { n: count(limit.amount) }), limit.amount),
      suggested ? leads('suggested', t('peaks.suggested', { share: `${Number((suggested.share * 100).toFixed(1))} %`, n: count(suggested.amount) }), suggested.amount) : null),
    why,
    h('div', { class: 'peaks-keys' }, who.node, more),
    limit.numbered ? h('p', { class: 'hint' }, t('peaks.numbered')) : null,
    h('p', { class: 'hint' }, t('peaks.hint')));
  move(i);
  return {
    node,
    current(is) {
      isCurrent = is;
      usable();
    },
  };
}

// nearest is the index of the place that is nearest to where the slider was dragged; before, if none is nearer.
export function nearest(at, value, before) {
  let best = before;
  for (let i = 0; i < at.length; i++) {
    if (Math.abs(at[i] - value) < Math.abs(at[best] - value)) best = i;
  }
  return best;
}

// drawing is the share of the keys by their peak: a stair, with a line at the amount of the text and the mark.
function drawing(limit, at, mark) {
  let y = 100;
  const points = [`0,${y}`];
  limit.curve.forEach(([, keys], i) => {
    points.push(`${at[i]},${y}`);
    y = (100 * (1 - keys / limit.keys)).toFixed(2);
    points.push(`${at[i]},${y}`);
  });
  const now = at[limit.curve.findIndex(([a]) => a === limit.amount)];
  return svg('svg', { class: 'peaks-curve', viewBox: `0 0 ${steps} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': t('peaks.curve', { limit: limit.name }) },
    svg('polygon', { class: 'fill', points: [...points, `${steps},${y}`, `${steps},100`].join(' ') }),
    svg('polyline', { class: 'stair', points: [...points, `${steps},${y}`].join(' ') }),
    svg('line', { class: 'now', x1: now, x2: now, y1: 0, y2: 100 }), mark);
}
