// Numbers, durations, times and keys as texts.
import { language, t } from './text.js';

const made = new Map();

function formatter(options) {
  const name = language() + JSON.stringify(options);
  if (!made.has(name)) made.set(name, new Intl.NumberFormat(language(), options));
  return made.get(name);
}

// count is a whole number; from 100,000 on it is shortened.
export function count(n) {
  if (Math.abs(n) < 100_000) return formatter({ maximumFractionDigits: 0 }).format(n);
  return short(n);
}

function short(n) {
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (Math.abs(n) >= size) {
      const v = n / size;
      return formatter({ maximumFractionDigits: v < 10 ? 2 : v < 100 ? 1 : 0 }).format(v) + unit;
    }
  }
  return formatter({ maximumFractionDigits: 0 }).format(n);
}

// rate is a number a second.
export function rate(n) {
  if (n >= 10_000) return short(n);
  const digits = n === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return formatter({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(n);
}

// rateTick is a rate at an axis.
export const rateTick = (n) => (n >= 10_000 ? short(n) : formatter({ maximumFractionDigits: 2 }).format(n));

// percent is a share of 1.
export function percent(share) {
  const p = share * 100;
  if (p > 0 && p < 0.01) return '<0.01 %';
  const digits = p === 0 || p >= 10 ? 0 : p < 1 ? 2 : 1;
  return formatter({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(p) + ' %';
}

// micros is a short duration in microseconds, such as those of decisions.
export function micros(us) {
  if (!us) return '–';
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${(us / 1000).toPrecision(us < 100_000 ? 2 : 3).replace(/\.0$/, '')} ms`;
  return `${(us / 1e6).toPrecision(3)} s`;
}

// microsTick is a duration at an axis.
export const microsTick = (us) => (us === 0 ? '0' : us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${us / 1000} ms` : `${us / 1e6} s`);

// span is a duration in microseconds as its two largest units; -1 is never.
export function span(us) {
  if (us < 0) return t('time.never');
  const s = us / 1e6;
  if (s < 10) return `${s.toFixed(1)} ${t('unit.s')}`;
  const units = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
  let left = Math.round(s);
  const i = units.findIndex(([, size]) => left >= size);
  const words = [];
  for (const [unit, size] of units.slice(i, i + 2)) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n) words.push(`${n} ${t(`unit.${unit}`)}`);
  }
  return words.join(' ');
}

const day = { month: 'short', day: 'numeric' };
const clockTime = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };

// time is a moment: the time of day, with the date if it is not today.
export function time(iso) {
  const d = new Date(iso);
  if (isNaN(d) || d.getFullYear() < 1971) return '–';
  const today = d.toDateString() === new Date().toDateString();
  return d.toLocaleString(language(), today ? clockTime : { ...day, ...clockTime });
}

// clock is the hour and minute of a moment.
export const clock = (at) => new Date(at).toLocaleTimeString(language(), { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

// exact is a moment in full, for titles.
export function exact(iso) {
  const d = new Date(iso);
  return isNaN(d) ? '' : d.toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
}

// ago is how long ago a moment was, and until how long it is to go.
export const ago = (iso) => t('time.ago', { span: span(Math.max(0, Date.now() - new Date(iso)) * 1000) });
export const until = (iso) => span(Math.max(0, new Date(iso) - Date.now()) * 1000);

const plain = /^(?![["])[^\s\p{C}\p{Z}]+$/u;

// keyText is a key as people read it, and as readKey and the API's parameters do: a list in
// brackets, and in quotes what could be taken for a list or has blanks.
export function keyText(key) {
  if (Array.isArray(key)) return `[${key.map((part) => JSON.stringify(part)).join(',')}]`;
  const text = String(key ?? '');
  return plain.test(text) ? text : JSON.stringify(text);
}

// readKey reads what keyText or a user wrote.
export function readKey(text) {
  const trimmed = text.trim();
  if (/^(\[.*\]|".*")$/s.test(trimmed)) {
    try {
      return JSON.parse(trimmed);
    } catch {
      // It is no JSON, so it is the key itself.
    }
  }
  return trimmed;
}
