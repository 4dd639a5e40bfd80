// The mode of a rule: a menu in the list of rules, a switch on the page of one, and the
// question before it changes.
import { call } from '../api.js';
import { ask, done, reason } from '../dialog.js';
import { h } from '../dom.js';
import { pill, problemBox, segments, select, writeButton } from '../parts.js';
import { canWrite } from '../session.js';
import { t } from '../text.js';

// modeMenu shows the mode of a rule, and changes it.
export function modeMenu(r, changed) {
  const kind = { enforce: '', shadow: 'warn', off: 'bad' }[r.mode.now];
  if (!canWrite()) return pill(t(`mode.${r.mode.now}`), kind);
  const options = ['enforce', 'shadow', 'off'].map((m) => [m, t(`mode.${m}`)]);
  if (r.mode.set !== null) options.push(['file', t('mode.file', { mode: t(`mode.${r.mode.file}`) })]);
  const menu = select(t('rules.mode.of', { name: r.name }), options, r.mode.now, async () => {
    const wanted = menu.value;
    menu.value = r.mode.now;
    if (await setMode(r.name, wanted)) changed();
  }, { class: `mode ${kind}`, testid: `mode-${r.name}` });
  return menu;
}

// modeSwitch shows the mode of the rule name as one of three buttons, and changes it.
export function modeSwitch(name, sw, changed) {
  const options = ['enforce', 'shadow', 'off'].map((m) => [m, t(`mode.${m}`)]);
  const set = async (m) => (await setMode(name, m).catch(problemBox)) && changed();
  if (!canWrite()) return pill(t(`mode.${sw.now}`));
  return h('div', { class: 'buttons' },
    sw.set !== null ? writeButton('mode-file', t('mode.file', { mode: t(`mode.${sw.file}`) }), () => set('file'), { class: 'plain' }) : null,
    segments(t('rules.mode.of', { name }), options, sw.now, set, { name: 'mode' }));
}

// setMode asks before it changes the mode of a rule; "file" is that of the file.
function setMode(name, mode) {
  return ask({
    title: mode === 'file' ? t('rules.setmode.file', { name }) : t('rules.setmode', { name, mode: t(`mode.${mode}`) }),
    body: h('p', { class: 'muted' }, t(`mode.${mode}.text`)),
    fields: [reason()],
    submit: t('set'),
    danger: mode === 'off',
    run: async (v) => {
      const answer = await call('PATCH', 'v1/switches', { rules: { [name]: mode === 'file' ? null : mode }, reason: v.reason });
      done(t('rules.setmode.done', { name }), answer);
      return true;
    },
  });
}
