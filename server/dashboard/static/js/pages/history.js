// The use of a key, rule, path or client: hour by hour for two weeks, and by weekday.
import { get, query } from '../api.js';
import { h, put, svg } from '../dom.js';
import { count, time } from '../format.js';
import { empty, problemBox } from '../parts.js';
import { language, t } from '../text.js';

const hours = 14 * 24;
const least = 3; // hours with a count, from which on there is something to compare

// history loads and shows what about names: {of, by, rule, key or name}.
export function history(about, signal) {
  const node = h('div', { class: 'pad stack', testid: 'history' }, h('p', { class: 'muted' }, t('loading')));
  get('v1/offenders/history' + query(about), { signal }).then((answer) => {
    if (!answer.hours.length) put(node, empty(t('history.none'), t('history.none.text')));
    else if (answer.hours.length < least) put(node, begun(answer.hours));
    else put(node, bars(answer.hours), heat(answer.weekdays));
  }, (error) => {
    if (!signal.aborted) put(node, problemBox(error));
  });
  return node;
}

// begun says in words what a chart of one bar would show.
function begun(all) {
  const n = all.reduce((sum, x) => sum + x.count, 0);
  return h('p', { class: 'muted num', testid: 'history-begun' }, t('history.begun', { n: count(n), from: time(all[0].from) }));
}

function bars(all) {
  const last = Date.parse(all.at(-1).from);
  const top = Math.max(...all.map((x) => x.count), 1);
  const begin = last - (hours - 1) * 3600_000;
  const total = all.reduce((n, x) => n + x.count, 0);
  const rects = all.map((x) => {
    const i = Math.round((Date.parse(x.from) - begin) / 3600_000);
    const size = Math.max(0.6, (x.count / top) * 58);
    return i < 0 ? null : svg('rect', { x: i, y: 60 - size, width: 0.8, height: size }, svg('title', {}, `${time(x.from)}: ${count(x.count)}${x.error ? ` (−${count(x.error)})` : ''}`));
  });
  return h('div', { class: 'hours' },
    svg('svg', { viewBox: `0 0 ${hours} 60`, preserveAspectRatio: 'none', role: 'img', 'aria-label': t('history.label', { n: count(total), top: count(top) }) }, rects),
    h('div', { class: 'ends muted num' }, h('span', {}, day(begin)), h('span', {}, t('history.peak', { n: count(top), zone: zone() })), h('span', {}, day(last))));
}

// zone is the name of the zone of this browser, in which times are shown.
const zone = () => new Intl.DateTimeFormat(language(), { timeZoneName: 'short' }).formatToParts().find((part) => part.type === 'timeZoneName').value;

const day = (at) => new Date(at).toLocaleDateString(language(), { weekday: 'short', month: 'short', day: 'numeric' });

function heat(weekdays) {
  if (!weekdays?.length) return null;
  const top = Math.max(1, ...weekdays.flat());
  const monday = Date.UTC(2024, 0, 1);
  const name = (i) => new Date(monday + i * 86400_000).toLocaleDateString(language(), { weekday: 'short', timeZone: 'UTC' });
  return h('div', {},
    h('h3', {}, t('history.weekdays')),
    h('table', { class: 'heat', 'aria-label': t('history.weekdays') },
      h('thead', {}, h('tr', {}, h('td', {}), Array.from({ length: 24 }, (_, i) => h('th', { scope: 'col' }, i % 6 === 0 || i === 23 ? i : h('span', { class: 'only-read' }, i))))),
      h('tbody', {}, weekdays.map((row, d) => h('tr', {}, h('th', { scope: 'row' }, name(d)), row.map((n, hour) => cell(n, top, t('history.cell', { day: name(d), from: hour, to: hour + 1, n: count(n) }))))))));
}

function cell(n, top, title) {
  const shade = n === 0 ? 0 : 0.12 + 0.88 * (n / top);
  return h('td', { title }, h('i', { css: { opacity: shade } }), h('span', { class: 'only-read' }, count(n)));
}
