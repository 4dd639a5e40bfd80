// The sentence at the top of the overview: how the limiter is, and what to press.
import { h } from '../dom.js';
import { percent, rate } from '../format.js';
import { link, sums } from '../parts.js';
import { t } from '../text.js';

// health is made of the stream and of the status, which may be null.
export function health(stream, status) {
  const live = stream?.last;
  if (stream?.state === 'lost') return sentence('warn', t('health.lost'), t('health.lost.text'));
  if (!live) return sentence('', t('health.waiting'), '');
  const total = sums(live.outcomes);
  const worst = [...live.rules || []].sort((a, b) => b.refused - a.refused)[0];
  const more = [t('health.now', { rate: rate(total.all), share: percent(total.share) })];
  if (worst?.refused > 0) more.push(' ', t('health.worst'), ' ', link(['rules', { rule: worst.name }], worst.name));
  const trouble = worries(live, status);
  if (trouble.length === 0) return sentence('good', t('health.good'), more);
  const [kind, title, text, place, press] = trouble[0];
  const also = trouble.slice(1).map(([, other]) => h('span', { class: 'also' }, other));
  return sentence(kind, title, [text, ' ', also, more], place ? link(place, press, { class: 'button' }) : null);
}

function sentence(kind, title, text, action) {
  return h('div', { class: `health-line ${kind}` }, h('span', { class: `dot ${kind}`, 'aria-hidden': 'true' }),
    h('div', {}, h('strong', {}, title), ' ', h('span', { class: 'muted' }, text)), action);
}

// worries are what is wrong, the worst first: [kind, title, text, place, press].
function worries(live, status) {
  const all = [];
  const say = (...worry) => all.push(worry);
  if (live.decides !== 'store') say('bad', t('health.store'), status?.store.error || t('health.store.text'));
  if (live.outcomes.undecided > 0) say('bad', t('health.undecided', { rate: rate(live.outcomes.undecided) }), t('health.undecided.text'));
  if (live.outcomes.overloaded > 0) say('bad', t('health.overloaded', { rate: rate(live.outcomes.overloaded) }), t('health.overloaded.text'));
  if (live.firing > 0) say('bad', t('health.firing', { n: live.firing }), '', 'alerts', t('health.firing.press'));
  if (status && !status.rules.enabled) say('warn', t('health.off'), t('health.off.text'), 'rules', t('health.off.press'));
  if (status?.rules.refused) say('warn', t('health.refused'), status.rules.refused.error, 'rules/edit', t('health.refused.press'));
  if (live.decides === 'store' && live.failures > 0) say('warn', t('health.failures', { rate: rate(live.failures) }), '');
  if (status?.controls.pending?.length) say('warn', t('health.pending', { n: status.controls.pending.length }), t('health.pending.text'));
  return all;
}
