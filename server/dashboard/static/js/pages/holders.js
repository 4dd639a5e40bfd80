// The requests that hold units of a key: how many, since when, until when, and their release.
import { post } from '../api.js';
import { ask, done, reason } from '../dialog.js';
import { h, setText } from '../dom.js';
import { count, span } from '../format.js';
import { code, panel, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

// holders is {node, set(limits)}: the holds of target, {rule, key}, under limits of /v1/keys/show.
// It is hidden while nothing is held. changed is called after a release.
export function holders(target, changed) {
  const total = h('span', { class: 'num muted', testid: 'holds-count' });
  const list = table({
    label: t('holds.title'),
    id: (r) => r.hold,
    name: 'hold',
    columns: [
      { name: 'hold', title: t('holds.request'), cell: (r) => h('span', { class: 'mono', title: r.hold }, r.hold.slice(-8)) },
      { name: 'units', title: t('holds.units'), grow: true, cell: (r) => r.parts.map((p) => h('div', {}, h('span', { class: 'num' }, t('holds.under', { n: count(p.units) })), ' ', code(p.limit))) },
      { name: 'age', title: t('holds.age'), num: true, sort: (r) => r.age, cell: (r) => span(r.age) },
      { name: 'left', title: t('holds.left'), num: true, sort: (r) => r.left, cell: (r) => span(r.left) },
      { name: 'act', title: '', act: true, cell: (r) => writeButton('release', t('holds.release'), () => release(r.hold), { class: 'small' }) },
    ],
  });
  const node = panel([t('holds.title'), ' ', total], writeButton('release-all', t('holds.release.all'), () => release(null), { class: 'small' }), list.node);
  node.hidden = true;
  node.dataset.testid = 'holds';

  async function release(hold) {
    const ok = await ask({
      title: hold ? t('holds.release.ask', { hold: hold.slice(-8) }) : t('holds.release.all.ask'),
      body: h('p', { class: 'muted' }, t('holds.release.text')),
      fields: [reason()], submit: t('holds.release'), danger: true,
      run: async (v) => {
        const which = hold ? { hold } : { all: true };
        const answer = await post('v1/keys/release', { ...target, ...which, ...(v.reason ? { reason: v.reason } : {}) });
        done(t('holds.released', { n: answer.released }), answer);
        return true;
      },
    });
    if (ok) changed();
  }

  return {
    node,
    set(limits) {
      const rows = new Map(); // by request: it may hold under several limits
      for (const limit of limits) {
        for (const one of limit.holds || []) {
          const row = rows.get(one.hold) || { hold: one.hold, age: one.age_us, left: one.left_us, parts: [] };
          row.left = Math.min(row.left, one.left_us);
          row.parts.push({ units: one.units, limit: limit.limit });
          rows.set(one.hold, row);
        }
      }
      node.hidden = rows.size === 0;
      setText(total, count(rows.size));
      list.set([...rows.values()]);
    },
  };
}
