// Drawings of limits: each algorithm as what it is, a window, a log or a bucket.
import { h, setText, svg } from '../dom.js';
import { count, exact, span } from '../format.js';
import { code, pill } from '../parts.js';
import { t } from '../text.js';

const kinds = ['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_log', 'sliding_window', 'in_flight'];
const cells = 60; // of the drawing of a log or of places, at most
const width = 168;
const height = 64;

// about is how long the windows of the calendar are, about, in µs.
const about = { day: 86400e6, week: 7 * 86400e6, month: 30 * 86400e6, year: 365 * 86400e6 };

// readLimit is what the text of a limit says: its algorithm, and its period in µs, 0 if it
// cannot be read.
export function readLimit(text) {
  const words = text.slice(text.lastIndexOf(':') + 1).trim().split(/\s+/);
  const units = { d: 86400e6, h: 3600e6, m: 60e6, s: 1e6, ms: 1000, µs: 1, us: 1 };
  if (words[1] === 'in_flight') return { kind: 'in_flight', period: 0 };
  if (words[1] === 'per' && Object.hasOwn(about, words[2])) return { kind: 'fixed_window', period: about[words[2]] };
  let period = 0;
  for (const [, n, unit] of (words[2] || '').matchAll(/([\d.]+)(ms|µs|us|d|h|m|s)/g)) period += Number(n) * units[unit];
  return { kind: words.find((w) => kinds.includes(w)) || kinds[0], period };
}

// gauge shows the state of one limit; set(state) shows a later one.
export function gauge(state) {
  const { kind, period } = readLimit(state.limit);
  const places = kind === 'in_flight';
  const draw = drawings[kind](period);
  const used = h('span', { class: 'big num' });
  const of = h('span', { class: 'muted num' });
  const held = h('span', { class: 'num', testid: 'held' });
  const bounds = h('div', { class: 'muted num', testid: 'window', hidden: !state.windows });
  const left = h('span', { class: 'num' });
  const reset = h('span', { class: 'num muted' });
  const node = h('div', { class: 'gauge', testid: 'gauge' },
    h('figure', { 'aria-hidden': 'true' }, draw.node),
    h('div', { class: 'gauge-text' },
      h('div', { class: 'gauge-name' }, code(state.limit), state.limit.includes(kind) ? null : [' ', pill(t(`kind.${kind}`))], state.tier ? [' ', pill(t('tier', { name: state.tier }))] : null),
      h('div', {}, used, ' ', of, ' ', held),
      h('div', {}, left, ' ', reset), bounds));
  return {
    node,
    set(s) {
      const now = s.held || 0;
      const share = (n) => (s.capacity > 0 ? Math.min(1, Math.max(0, n / s.capacity)) : 0);
      node.classList.toggle('full', s.remaining <= 0);
      setText(used, count(places ? now : s.used));
      setText(of, places ? t('gauge.places', { capacity: count(s.capacity) }) : t('gauge.of', { capacity: count(s.capacity) }));
      setText(held, now > 0 && !places ? t('gauge.held', { n: count(now) }) : '');
      setText(left, places ? t('gauge.free', { n: count(s.remaining) }) : t('gauge.left', { n: count(s.remaining) }));
      setText(reset, places ? '' : s.used > 0 ? t('gauge.reset', { span: span(s.reset_after_us) }) : now > 0 ? '' : t('gauge.unused'));
      if (s.windows) {
        setText(bounds, t('gauge.window', { from: local(s.windows[0]), to: local(s.windows[1]) }));
        bounds.title = s.windows.slice(0, 2).map(exact).join(' – ');
      }
      draw.set(share(s.used), s, Math.min(share(now), 1 - share(s.used)));
    },
  };
}

// local is a moment in the zone in which it is written, without its offset.
const local = (iso) => iso.slice(0, 16).replace('T', ' ').replace(' 00:00', '');

// passedOf is how much of a window has passed, between 0 and 1.
function passedOf(s, period) {
  if (s.windows) {
    const [from, to] = s.windows.map((w) => Date.parse(w));
    return Math.min(1, Math.max(0, (Date.now() - from) / (to - from)));
  }
  return period && s.used > 0 ? Math.min(1, Math.max(0, 1 - s.reset_after_us / period)) : s.held > 0 ? 1 : 0;
}

// stack places a part of a drawing, which is as high as the drawing, on what lies below it.
const stack = (part, below, share) => part.style.setProperty('transform', `translateY(${-48 * below}px) scale(1, ${share})`);

const frame = (...children) => svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height }, children);

// The set(share, state, held) of a drawing: share is how much is used, held how much is held, which
// lies on it. Every drawing is empty when nothing is used, and full when nothing is left; so is the
// bucket of tokens, though its tokens do the reverse.

// bucket has a level, which moves by a transform so that it can be animated, and drains.
function bucket() {
  const level = svg('rect', { class: 'level', x: 54, y: 8, width: 60, height: 48 });
  const held = svg('rect', { class: 'level held', x: 54, y: 8, width: 60, height: 48 });
  return {
    node: frame(level, held, svg('path', { class: 'walls', d: 'M52 8v50h64V8' }), svg('path', { class: 'drop', d: 'M84 58v6' })),
    set(share, _, holding) {
      stack(level, 0, share);
      stack(held, share, holding);
    },
  };
}

// box is a window, with a mark in it.
function box(mark) {
  const rect = (props) => svg('rect', { x: 1, y: 8, width: width - 2, height: 48, ...props });
  const used = rect({ class: 'level' });
  const held = rect({ class: 'level held' });
  return {
    node: frame(used, held, rect({ class: 'walls' }), mark),
    set(share, _, holding) {
      stack(used, 0, share);
      stack(held, share, holding);
    },
  };
}

const drawings = {
  token_bucket: bucket,
  leaky_bucket: bucket,
  // The window from its start to its end, with the moment in it.
  fixed_window(period) {
    const now = svg('path', { class: 'now', d: 'M0 4v56' });
    const { node, set } = box(now);
    return {
      node,
      set(share, s, holding) {
        set(share, s, holding);
        now.style.setProperty('transform', `translateX(${1 + passedOf(s, period) * (width - 2)}px)`);
      },
    };
  },
  // What was used weighs less the older it is.
  sliding_window: () => box(svg('path', { class: 'slope', d: `M1 56L${width - 1} 8` })),
  sliding_log: () => grid(),
  in_flight: () => grid(),
};

// grid has one cell for each request that is remembered, for each place, or for each of equal
// parts. A part of which anything is held is drawn so.
function grid() {
  const rects = [];
  const g = svg('g', {});
  const build = (n) => {
    const columns = Math.min(n, n > 30 ? 20 : n > 12 ? 15 : n > 6 ? 6 : n);
    const rows = Math.ceil(n / columns);
    const w = (width - 2) / columns;
    const hgt = Math.min(24, 50 / rows);
    for (let i = 0; i < n; i++) {
      rects.push(svg('rect', { x: 1 + (i % columns) * w + 1, y: 8 + Math.floor(i / columns) * hgt + 1, width: Math.max(1, w - 2), height: hgt - 2, rx: 1 }));
    }
    g.append(...rects);
  };
  return {
    node: frame(g),
    set(share, s, holding) {
      if (!rects.length) build(Math.max(1, Math.min(cells, s.capacity)));
      const used = Math.round(share * rects.length);
      const held = used + Math.ceil(holding * rects.length);
      rects.forEach((r, i) => r.setAttribute('class', i < used ? 'cell used' : i < held ? 'cell held' : 'cell'));
    },
  };
}

