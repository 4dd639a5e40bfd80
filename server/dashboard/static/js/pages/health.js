// The sentence at the top of the overview: how the limiter is, and what to press.
import { h, setText } from '../dom.js';
import { percent, rate } from '../format.js';
import { href, sums } from '../parts.js';
import { t } from '../text.js';

// healthLine is {node, set(stream, status)}. status may be null. Only a new verdict is read
// out by screen readers, not the numbers of each second.
export function healthLine() {
  const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  const title = h('strong', { role: 'status' });
  const text = h('span', { class: 'muted' });
  const also = h('span', {});
  const numbers = h('span', { class: 'muted num' });
  const worst = h('a');
  const action = h('a', { class: 'button', hidden: true, testid: 'btn-health' });
  const node = h('div', { class: 'health-line', testid: 'health' }, dot, h('div', {}, title, ' ', text, ' ', also, ' ', numbers, ' ', worst), action);
  return {
    node,
    set(stream, status) {
      const live = stream.last;
      const all = live && stream.state !== 'lost' ? worries(live, status) : [];
      const [kind, what, why, place, press] = verdict(stream, all);
      node.className = `health-line ${kind}`;
      dot.className = `dot ${kind}`;
      setText(title, what);
      setText(text, why);
      setText(also, all.slice(1).map((w) => w[1]).join(' '));
      action.hidden = !place;
      setText(action, press || '');
      if (place) action.setAttribute('href', href(place));
      const total = sums(live?.outcomes);
      setText(numbers, live ? t('health.now', { rate: rate(total.all), share: percent(total.share) }) : '');
      const most = (live?.rules || []).filter((r) => r.decided > 0).sort((a, b) => b.refused - a.refused)[0];
      worst.hidden = !(most?.refused > 0);
      if (!worst.hidden) {
        setText(worst, t('health.worst', { name: most.name }));
        worst.setAttribute('href', href(['rules', { rule: most.name }]));
      }
    },
  };
}

function verdict(stream, all) {
  if (stream.state === 'lost') return ['warn', t('health.lost'), t('health.lost.text')];
  if (!stream.last) return ['', t('health.waiting'), ''];
  return all[0] || ['good', t('health.good'), ''];
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
