// The versions of the fleet's rules: what each changed, and the way back.
import { get, post } from '../api.js';
import { diffBox } from '../diff.js';
import { ask, done } from '../dialog.js';
import { h, put } from '../dom.js';
import { exact, time } from '../format.js';
import { button, empty, panel, pill, problemBox, writeButton } from '../parts.js';
import { table } from '../table.js';
import { t } from '../text.js';

export async function versions(ctx, tabs) {
  const detail = h('div', { class: 'stack' });
  const trouble = h('div');
  let all = [];
  const grid = table({
    label: t('rules.versions'),
    id: (v) => v.number,
    empty: empty(t('versions.none'), t('versions.none.text')),
    columns: [
      { name: 'number', title: '#', num: true, cell: (v) => v.number },
      { name: 'version', title: t('col.version'), opt: true, cell: (v) => h('code', {}, v.version) },
      { name: 'at', title: t('col.time'), cell: (v) => h('span', { title: exact(v.at) }, time(v.at)) },
      { name: 'author', title: t('col.who'), cell: (v) => v.author || '–' },
      { name: 'note', title: t('push.note'), grow: true, opt: true, cell: (v) => h('span', { title: v.note }, v.note || '') },
      { name: 'act', title: '', act: true, cell: (v) => [
        v.number === all[0]?.number ? pill(t('versions.newest'), 'accent') : null,
        button(`show-${v.number}`, t('versions.show'), () => show(v), { class: 'small' }),
        v.number === all[0]?.number ? null : writeButton(`rollback-${v.number}`, t('versions.rollback'), () => rollback(v), { class: 'small' })] },
    ],
  });
  put(ctx.root, h('div', { class: 'title' }, ctx.head), tabs, trouble, h('section', { class: 'panel' }, grid.node), detail);

  await ctx.every(15_000, async () => {
    all = (await get('v1/rules/versions?limit=50', { signal: ctx.signal })).versions;
    grid.set(all);
  }, trouble);

  const text = async (number) => (await get(`v1/rules/versions/${number}`, { signal: ctx.signal })).text;

  async function show(v) {
    const before = all[all.findIndex((one) => one.number === v.number) + 1];
    try {
      const [now, then] = await Promise.all([text(v.number), before ? text(before.number) : '']);
      const box = panel(t('versions.changed', { n: v.number }), v.author, h('div', { class: 'pad stack' }, diffBox(then, now),
        h('details', {}, h('summary', {}, t('versions.whole')), h('pre', { class: 'code-box', tabindex: 0 }, now))));
      put(detail, box);
      box.scrollIntoView({ block: 'nearest' });
    } catch (error) {
      put(detail, problemBox(error));
    }
  }

  async function rollback(v) {
    const after = all[0].number;
    const [now, then] = await Promise.all([text(after), text(v.number)]).catch((error) => {
      put(detail, problemBox(error));
      return [];
    });
    if (then === undefined) return;
    const answer = await ask({
      title: t('rollback.title', { n: v.number }),
      body: h('div', { class: 'stack' }, h('p', { class: 'muted' }, t('rollback.text', { n: after + 1 })), diffBox(now, then)),
      fields: [{ name: 'note', label: t('push.note'), hint: t('push.note.hint') }],
      submit: t('versions.rollback'),
      danger: true,
      wide: true,
      run: (values) => post('v1/rules/rollback', { to: v.number, after, note: values.note }),
    });
    if (!answer) return;
    done(t('push.done', { n: answer.number }), answer);
    ctx.again();
  }
}
