// Small parts that all pages use.
import { h, svg } from './dom.js';
import { canWrite } from './session.js';
import { maybe, t } from './text.js';

// button runs run when it is pressed.
export function button(name, text, run, props = {}) {
  return h('button', { type: 'button', testid: `btn-${name}`, ...props, on: { click: run } }, text);
}

// writeButton is a button for users who may change something; others do not get it.
export function writeButton(name, text, run, props) {
  return canWrite() ? button(name, text, run, props) : null;
}

// link leads to another page of this one. place is "rules" or ["rules", {rule: name}].
export function link(place, text, props = {}) {
  return h('a', { href: href(place), ...props }, text);
}

export function href(place) {
  const [path, values] = [place].flat();
  const given = Object.entries(values || {}).filter(([, v]) => v !== undefined && v !== '');
  return `#/${path}` + (given.length ? `?${new URLSearchParams(given)}` : '');
}

// panel is a part of a page with a heading and, at its right, aside.
export function panel(title, aside, ...children) {
  return h('section', { class: 'panel' },
    h('header', {}, h('h2', {}, title), aside ? h('div', { class: 'aside' }, aside) : null),
    children);
}

// pill is a short state. kind: good, bad, warn, accent or nothing.
export function pill(text, kind = '') {
  return h('span', { class: `pill ${kind}` }, text);
}

// empty is what stands where there is nothing, and says what would be there and how.
export function empty(title, text, ...more) {
  return h('div', { class: 'empty', testid: 'empty' }, h('p', { class: 'strong' }, title), text ? h('p', {}, text) : null, more);
}

export const code = (text) => h('code', {}, text);

// problemText is what went wrong, for people.
export function problemText(error) {
  if (error?.status === 0) return t('error.unreachable');
  return error?.message || String(error);
}

// problemBox shows an error with the problems that the server named.
export function problemBox(error) {
  return h('div', { class: 'problem', testid: 'problem' },
    h('p', {}, problemText(error)),
    error?.problems?.length
      ? h('ul', {}, error.problems.map((p) => h('li', {}, p.where ? h('code', {}, p.where) : null, ' ', p.text)))
      : null);
}

// localNote says that an answer is this instance's alone; nothing if the store answered.
export function localNote(answer) {
  if (answer.by !== 'local') return null;
  return h('div', { class: 'notice warn', testid: 'local' }, t('note.local'), ' ', h('span', { class: 'muted' }, answer.store_error));
}

// segments is a choice of one of a few values. options: [[value, text], …].
export function segments(label, options, value, choose, { name = 'segment', disabled = false } = {}) {
  const group = h('div', { class: 'segments', role: 'group', 'aria-label': label });
  for (const [v, text] of options) {
    group.append(h('button', {
      type: 'button', testid: `btn-${name}-${v}`, 'aria-pressed': String(v === value), disabled,
      on: { click: () => v !== value && choose(v) },
    }, text));
  }
  return group;
}

// select is a menu. options: [[value, text], …].
export function select(label, options, value, choose, props = {}) {
  const menu = h('select', { 'aria-label': label, ...props, on: { change: () => choose(menu.value) } },
    options.map(([v, text]) => h('option', { value: v, selected: v === value }, text)));
  return menu;
}

// share is a thin bar of a share between 0 and 1.
export function share(of, kind = '') {
  return h('span', { class: `share ${kind}`, 'aria-hidden': 'true' },
    h('span', { css: { width: `${Math.min(100, Math.max(0, of * 100))}%` } }));
}

const markOf = {
  limited: 'bad', warned: 'bad', banned: 'bad', blocked: 'bad', undecided: 'warn', overloaded: 'warn',
  allowed: 'good', safe: 'good', unmatched: '',
};

// outcome is the name of an outcome as a pill.
export const outcome = (name) => pill(maybe(`outcome.${name}`, name), markOf[name] ?? '');

export const refusals = ['limited', 'warned', 'banned', 'blocked', 'overloaded', 'undecided'];

// sums adds the rates of outcomes up.
export function sums(outcomes) {
  let all = 0;
  let refused = 0;
  for (const [name, n] of Object.entries(outcomes || {})) {
    all += n;
    if (refusals.includes(name)) refused += n;
  }
  return { all, refused, share: all > 0 ? refused / all : 0 };
}

// totals are all and the refused requests of each step of a series.
export function totals(series) {
  const n = Math.max(0, ...Object.values(series.outcomes).map((v) => v.length));
  const all = new Array(n).fill(0);
  const refused = new Array(n).fill(0);
  for (const [name, values] of Object.entries(series.outcomes)) {
    values.forEach((v, i) => {
      const at = n - values.length + i;
      all[at] += v;
      if (name !== 'allowed' && name !== 'beside') refused[at] += v;
    });
  }
  return [all, refused];
}

// spark is a small line of values, the oldest first, and of refusals below it.
export function spark(all, refused, label) {
  const width = 120;
  const height = 24;
  const top = Math.max(1e-9, ...all);
  const points = (values, base) => {
    const step = width / Math.max(1, values.length - 1);
    const line = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 1 - (v / top) * (height - 3)).toFixed(1)}`);
    return base ? [`0,${height}`, ...line, `${width},${height}`].join(' ') : line.join(' ');
  };
  return svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    svg('polyline', { class: 'all', points: points(all) }),
    svg('polygon', { class: 'refused', points: points(refused, true) }));
}

// tabs are links between the parts of a page. options: [[place, text, name], …].
export function tabs(label, options, at) {
  return h('nav', { class: 'tabs', 'aria-label': label }, options.map(([place, text, name]) =>
    h('a', { href: href(place), testid: `tab-${name}`, 'aria-current': name === at ? 'page' : null }, text)));
}

// facts is a list of names and values; those without a value are left out.
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, v]) => v !== null && v !== undefined && v !== '' && v !== false).map(([name, value]) =>
    h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}
