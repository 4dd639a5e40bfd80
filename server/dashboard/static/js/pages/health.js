// What the overview says first: how the limiter is, what it refuses, whom, and what to press.
import { h, setText } from '../dom.js';
import { clock, keyText, percent, rate, span } from '../format.js';
import { href, sums } from '../parts.js';
import { t } from '../text.js';

// healthLine is {node, set(stream, mean, known)}. mean are the outcomes a second as meanOf of
// overview.js has them. known is what calls have answered so far: {status,
// alerts, worst, since}: worst is the answer about the most refused keys, since what refusing of
// overview.js returns. Only a new verdict is read out by screen readers, not the numbers of each
// second.
export function healthLine() {
  const dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  const title = h('strong', { role: 'status' });
  const text = h('span', { class: 'muted' });
  const also = h('span', {});
  const numbers = h('span', { class: 'muted num' });
  const rule = h('a');
  const byRule = h('span', { class: 'muted', hidden: true }, t('health.rule'), ' ', rule);
  const key = h('a', { class: 'mono', testid: 'health-key' });
  const keyShare = h('span', { class: 'muted num' });
  const byKey = h('span', { class: 'muted', hidden: true }, t('health.key'), ' ', key, ' ', keyShare);
  const action = h('a', { class: 'button', hidden: true, testid: 'btn-health' });
  const node = h('div', { class: 'health-line', testid: 'health' }, dot, h('div', {},
    h('p', {}, title, ' ', text, ' ', also, ' ', numbers), h('p', { class: 'whom' }, byRule, byKey)), action);
  return {
    node,
    set(stream, mean, known) {
      const live = stream.last;
      const wrong = live && stream.state !== 'lost' ? worries(live, known) : [];
      const [kind, what, why, place, press] = verdict(stream, wrong);
      node.className = `health-line ${kind}`;
      dot.className = `dot ${kind}`;
      setText(title, what);
      setText(text, why);
      setText(also, wrong.slice(1).map((w) => w[1]).join(' '));
      action.hidden = !place;
      setText(action, press || '');
      if (place) action.setAttribute('href', href(place));
      const total = sums(mean.outcomes);
      setText(numbers, live ? [
        t('health.now', { rate: rate(total.all), share: percent(total.share), n: mean.seconds }), total.refused > 0 && known.since ? t(`health.since.${known.since.whole ? 'before' : 'at'}`, { time: clock(known.since.at) }) : '',
      ].join(' ') : '');
      const most = (live?.rules || []).filter((r) => r.applied > 0).sort((a, b) => b.refused - a.refused)[0];
      byRule.hidden = !(most?.refused > 0);
      if (!byRule.hidden) {
        setText(rule, most.name);
        rule.setAttribute('href', href(['rules', { rule: most.name }]));
      }
      const worst = known.worst?.offenders[0];
      byKey.hidden = !(worst && total.refused > 0);
      if (!byKey.hidden) {
        setText(key, keyText(worst.key));
        if (worst.hashed) key.removeAttribute('href');
        else key.setAttribute('href', href(['keys', { rule: worst.rule, key: keyText(worst.key) }]));
        setText(keyShare, t('health.key.share', { share: percent(worst.count / known.worst.total), time: clock(known.worst.since) }));
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
function worries(live, { status, alerts }) {
  const all = [];
  const say = (...worry) => all.push(worry);
  const away = live.down_s ? span(1e6 * live.down_s) : '';
  if (live.decides !== 'store') say('bad', away ? t('health.store.away', { away }) : t('health.store'), status?.store.error || t('health.store.text'));
  if (live.outcomes.undecided > 0) say('bad', t('health.undecided', { rate: rate(live.outcomes.undecided) }), t('health.undecided.text'));
  if (live.outcomes.overloaded > 0) say('bad', t('health.overloaded', { rate: rate(live.outcomes.overloaded) }), t('health.overloaded.text'));
  if (live.firing > 0) say('bad', t('health.firing', { n: live.firing }), firing(alerts), 'alerts', t('health.firing.press'));
  if (status && !status.rules.enabled) say('warn', t('health.off'), t('health.off.text'), 'rules', t('health.off.press'));
  if (status?.rules.refused) say('warn', t('health.refused'), status.rules.refused.error, 'rules/edit', t('health.refused.press'));
  if (live.breaker === 'partly open') say('warn', t('health.store.part', { away }), t('health.store.part.text'));
  if (live.decides === 'store' && live.failures > 0) say('warn', t('health.failures', { rate: rate(live.failures) }), '');
  if (live.holds_lost > 0) say('warn', t('health.lostholds', { rate: rate(live.holds_lost) }), t('health.lostholds.text'));
  if (live.costs_unknown > 0) say('warn', t('health.costs', { rate: rate(live.costs_unknown) }), t('health.costs.text'));
  if (status?.controls.pending?.length) say('warn', t('health.pending', { n: status.controls.pending.length }), t('health.pending.text'));
  return all;
}

// firing are the names of the alerts that fire, the first three.
function firing(alerts) {
  const names = (alerts?.alerts || []).filter((a) => a.state === 'firing' && !a.silence).map((a) => a.name);
  return names.length ? `${names.slice(0, 3).join(', ')}${names.length > 3 ? ', …' : '.'}` : '';
}
