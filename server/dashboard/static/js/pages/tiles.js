// The numbers at the top of the overview.
import { h, setText } from '../dom.js';
import { count, micros, percent, rate } from '../format.js';
import { sums } from '../parts.js';
import { maybe, t } from '../text.js';

// meanOf is the mean of the outcomes a second of the last seconds, for every number at the top, so
// that these agree: {outcomes, seconds, add(live)}; seconds is of how many it is.
export function meanOf(most) {
  const last = [];
  const mean = {
    outcomes: {},
    seconds: 0,
    add(live) {
      if (last.at(-1)?.at === live.at) return;
      last.push(live);
      last.splice(0, last.length - most);
      mean.seconds = last.length;
      mean.outcomes = {};
      for (const { outcomes } of last) {
        for (const [name, n] of Object.entries(outcomes)) mean.outcomes[name] = (mean.outcomes[name] || 0) + n / last.length;
      }
    },
  };
  return mean;
}

// tiles are the numbers that matter most.
export function tiles() {
  const made = {};
  const node = h('dl', { class: 'tiles panel' }, ['decisions', 'refused', 'decide', 'store', 'decides', 'bans', 'alerts', 'rules'].map((name) => {
    const value = h('dd', { class: 'value num', testid: `tile-${name}` }, '–');
    const more = h('dd', { class: 'more num' }, '\u00a0');
    made[name] = { value, more };
    return h('div', {}, h('dt', {}, t(`tile.${name}`)), value, more);
  }));
  const tell = (name, value, more, kind) => {
    setText(made[name].value, value);
    setText(made[name].more, more || '\u00a0');
    made[name].value.className = `value num ${kind || ''}`;
  };
  return {
    node,
    set(live, mean, status) {
      const total = sums(mean.outcomes);
      tell('decisions', rate(total.all), live.holds ? t('tile.decisions.holds', { n: count(live.holds) }) : t('tile.decisions.more', { n: mean.seconds }));
      tell('refused', percent(total.share), t('tile.refused.more', { rate: rate(total.refused) }));
      tell('decide', micros(live.decide.p50_us), t('tile.p99', { value: micros(live.decide.p99_us) }));
      tell('store', micros(live.store.p50_us), live.failures > 0 ? t('tile.store.failures', { rate: rate(live.failures) }) : t('tile.p99', { value: micros(live.store.p99_us) }), live.failures > 0 ? 'bad' : '');
      const store = live.decides === 'store';
      tell('decides', store ? t('decides.store') : t('decides.fallback'), live.breaker ? t('tile.breaker', { state: maybe(`breaker.${live.breaker}`, live.breaker) }) : status?.store.kind, store ? '' : 'bad');
      tell('bans', count(live.bans), t('tile.bans.more'));
      tell('alerts', count(live.firing), t('tile.alerts.more'), live.firing > 0 ? 'bad' : '');
      const n = status?.rules.number;
      tell('rules', n ? `#${n}` : t(`source.${status?.rules.source || 'file'}`), live.version);
    },
  };
}
