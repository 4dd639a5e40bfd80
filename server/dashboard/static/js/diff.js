// Differences of two texts, line by line.
import { h } from './dom.js';
import { t } from './text.js';

const most = 1_000_000; // steps, after which all lines count as replaced

// lines compares a and b: [{kind: ' ', '-' or '+', text}] of Myers' algorithm.
export function lines(a, b) {
  const from = a ? a.split('\n') : [];
  const to = b ? b.split('\n') : [];
  let head = 0;
  while (head < from.length && head < to.length && from[head] === to[head]) head++;
  let tail = 0;
  while (tail < from.length - head && tail < to.length - head && from.at(-1 - tail) === to.at(-1 - tail)) tail++;
  const same = (text) => ({ kind: ' ', text });
  return [
    ...from.slice(0, head).map(same),
    ...middle(from.slice(head, from.length - tail), to.slice(head, to.length - tail)),
    ...from.slice(from.length - tail).map(same),
  ];
}

function middle(a, b) {
  const trace = [];
  let ends = new Map([[1, 0]]);
  let steps = 0;
  for (let d = 0; d <= a.length + b.length; d++) {
    trace.push(new Map(ends));
    for (let k = -d; k <= d; k += 2) {
      if (++steps > most) return replaced(a, b);
      let x = down(ends, k, d) ? ends.get(k + 1) : ends.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      ends.set(k, x);
      if (x >= a.length && x - k >= b.length) return back(trace, a, b);
    }
  }
  return [];
}

const down = (ends, k, d) => k === -d || (k !== d && (ends.get(k - 1) ?? -1) < (ends.get(k + 1) ?? -1));

const replaced = (a, b) => [...a.map((text) => ({ kind: '-', text })), ...b.map((text) => ({ kind: '+', text }))];

function back(trace, a, b) {
  const result = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const ends = trace[d];
    const k = x - y;
    const before = down(ends, k, d) ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : ends.get(before);
    const fromY = d === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) {
      result.push({ kind: ' ', text: a[--x] });
      y--;
    }
    if (d === 0) break;
    if (x > fromX) result.push({ kind: '-', text: a[--x] });
    else result.push({ kind: '+', text: b[--y] });
  }
  return result.reverse();
}

// summary counts the lines that were added and removed.
export function summary(all) {
  return { added: all.filter((l) => l.kind === '+').length, removed: all.filter((l) => l.kind === '-').length };
}

// diffBox shows a difference with a few lines around each change.
export function diffBox(a, b, around = 3) {
  const all = lines(a, b);
  const { added, removed } = summary(all);
  if (added + removed === 0) return h('p', { class: 'muted', testid: 'diff-same' }, t('diff.same'));
  const near = all.map(() => false);
  all.forEach((l, i) => {
    if (l.kind !== ' ') for (let k = Math.max(0, i - around); k <= Math.min(all.length - 1, i + around); k++) near[k] = true;
  });
  const rows = [];
  let skipped = false;
  all.forEach((l, i) => {
    if (!near[i]) {
      if (!skipped) rows.push(h('div', { class: 'skip-line' }, '⋯'));
      skipped = true;
      return;
    }
    skipped = false;
    const kind = { '+': 'added', '-': 'removed' }[l.kind] || '';
    rows.push(h('div', { class: kind }, h('span', { class: 'sign' }, l.kind), l.text || ' '));
  });
  return h('div', { testid: 'diff' },
    h('p', { class: 'num muted' }, t('diff.summary', { added, removed })),
    h('div', { class: 'diff code-box', tabindex: 0, role: 'region', 'aria-label': t('diff.label') }, rows));
}
