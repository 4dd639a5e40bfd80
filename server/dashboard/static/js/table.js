// Tables. A long one has a scroll area of its own and holds only the rows that can be seen.
import { h, put } from './dom.js';
import { t } from './text.js';

const windowed = 200; // rows from which on only those in view are made
const spare = 12; // rows made beyond the edges of the view
const rowHeight = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row')) || 36;

// table is a table of rows.
//
//   label    its name, for screen readers
//   columns  [{name, title, num, opt, grow, cell(row), sort(row)}]: num aligns at the right,
//            opt is left out on narrow screens, grow takes the room that is left ('half'
//            if two columns do, 'wrap' if its text may take more lines), sort returns what to compare. A cell may keep the elements
//            of an earlier row of the same id if they look the same.
//   id       the identity of a row
//   empty    the node to show if there are no rows
//
// Until the first set the table says that it loads. set(rows) shows other rows. Rows that have not changed keep their elements, so that a
// click or the focus is not lost.
export function table({ label, columns, id, empty, name = 'row' }) {
  const body = h('tbody');
  const heads = columns.map((c, i) => h('th', { scope: 'col', class: classes(c) },
    c.sort ? h('button', { type: 'button', class: 'sort', testid: `btn-sort-${c.name}`, on: { click: () => sortBy(i) } }, c.title) : c.title || h('span', { class: 'only-read' }, t('table.actions'))));
  const grid = h('table', { 'aria-label': label }, h('thead', {}, h('tr', {}, heads)), body);
  const scroll = h('div', { class: 'scroll', on: { scroll: () => draw(true) } }, grid);
  const node = h('div', { class: 'table' }, h('p', { class: 'waiting' }, t('loading')));
  let rows = [];
  let shown = [];
  let order = null; // {column, down}
  let made = new Map(); // id → {text, tr}
  let drawn = ''; // the first and the last row that are made

  function set(next) {
    rows = next;
    arrange();
  }

  function sortBy(i) {
    order = order?.column === i ? { column: i, down: !order.down } : { column: i, down: Boolean(columns[i].num) };
    heads.forEach((th, k) => (k === i ? th.setAttribute('aria-sort', order.down ? 'descending' : 'ascending') : th.removeAttribute('aria-sort')));
    arrange();
  }

  function arrange() {
    shown = rows;
    if (order) {
      const by = columns[order.column].sort;
      const sign = order.down ? -1 : 1;
      shown = rows.map((row) => [by(row), row]).sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0)).map(([, row]) => row);
    }
    const content = shown.length || !empty ? scroll : empty;
    if (node.firstChild !== content) put(node, content); // else the place in it would be lost
    const long = shown.length > windowed;
    scroll.classList.toggle('long', long);
    if (long) {
      scroll.tabIndex = 0;
      scroll.setAttribute('role', 'region');
      scroll.setAttribute('aria-label', label);
      grid.setAttribute('aria-rowcount', shown.length + 1);
    } else {
      for (const name of ['tabindex', 'role', 'aria-label']) scroll.removeAttribute(name);
      grid.removeAttribute('aria-rowcount');
    }
    draw();
  }

  // draw makes the rows in view; after scrolling only if these are others.
  function draw(scrolled = false) {
    let first = 0;
    let last = shown.length;
    if (last > windowed) {
      const height = rowHeight();
      first = Math.max(0, Math.floor(scroll.scrollTop / height) - spare);
      last = Math.min(last, Math.ceil((scroll.scrollTop + (scroll.clientHeight || 600)) / height) + spare);
    }
    if (scrolled && drawn === `${first} ${last}`) return;
    drawn = `${first} ${last}`;
    const kept = new Map();
    const list = [];
    for (let i = first; i < last; i++) list.push(element(shown[i], i, kept));
    made = kept;
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const row = focused?.closest('tr').sectionRowIndex;
    place([gap(first), ...list, gap(shown.length - last)].filter(Boolean));
    if (focused && !focused.isConnected) refocus(row, focused.dataset.testid);
  }

  // refocus gives the focus to what is at the place of an element that has gone.
  function refocus(row, testid) {
    const tr = body.rows[Math.min(row, body.rows.length - 1)];
    const next = [...tr?.querySelectorAll('a, button, select') || []];
    (next.find((e) => e.dataset.testid === testid) || next[0] || (scroll.tabIndex === 0 ? scroll : null))?.focus({ preventScroll: true });
  }

  // place makes want the rows of the body, and moves only what is not in its place.
  function place(want) {
    const keep = new Set(want);
    for (const child of [...body.children]) if (!keep.has(child)) child.remove();
    want.forEach((tr, i) => {
      if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null);
    });
  }

  function element(row, i, kept) {
    const key = String(id(row, i));
    const text = JSON.stringify(row);
    const old = made.get(key);
    const tr = old?.tr || h('tr');
    if (old?.text !== text) cellsOf(tr, row);
    tr.dataset.testid = `${name}-${i}`;
    if (shown.length > windowed) tr.setAttribute('aria-rowindex', i + 2);
    kept.set(key, { text, tr });
    return tr;
  }

  // cellsOf makes the cells of a row, and keeps those that look the same, so that an open
  // menu stays open while other cells change.
  function cellsOf(tr, row) {
    columns.forEach((c, i) => {
      const fresh = h('td', { class: classes(c) }, c.cell(row));
      const old = tr.cells[i];
      if (!old) tr.append(fresh);
      else if (!old.isEqualNode(fresh)) {
        const active = old.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
        old.replaceWith(fresh);
        if (active) [...fresh.querySelectorAll('[data-testid]')].find((e) => e.dataset.testid === active)?.focus({ preventScroll: true });
      }
    });
  }

  function gap(n) {
    if (n <= 0) return null;
    return h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length, css: { height: `${n * rowHeight()}px` } }));
  }

  return { node, set };
}

function classes(c) {
  return [c.num && 'num', c.opt && 'opt', c.grow && (c.grow === true ? 'grow' : c.grow), c.act && 'act'].filter(Boolean).join(' ') || null;
}
