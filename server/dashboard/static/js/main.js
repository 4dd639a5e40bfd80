// Starts the page, and shows the part of it that the fragment of the URL names, such as
// #/rules?rule=login.
import { onSignedOut } from './api.js';
import { put, h } from './dom.js';
import { onLive, start } from './live.js';
import { empty, problemBox } from './parts.js';
import { load, onSession } from './session.js';
import { names, shell } from './shell.js';
import { askToken } from './signin.js';
import { t } from './text.js';
import { overview } from './pages/overview.js';

const pages = {
  overview: async () => overview,
  rules: async () => (await import('./pages/rules.js')).rules,
  keys: async () => (await import('./pages/keys.js')).keys,
  offenders: async () => (await import('./pages/offenders.js')).offenders,
  bans: async () => (await import('./pages/bans.js')).bans,
  alerts: async () => (await import('./pages/alerts.js')).alerts,
  audit: async () => (await import('./pages/audit.js')).audit,
  try: async () => (await import('./pages/tryit.js')).tryIt,
};

const app = document.getElementById('app');
let frame = null;
let leave = new AbortController();

// render makes everything anew.
function render() {
  frame?.end();
  frame = shell(app, render);
  show(false);
}

async function show(move = true) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [path, values] = location.hash.length > 2 ? location.hash.slice(2).split('?') : ['overview'];
  const [first, ...rest] = path.split('/');
  const name = names.includes(first) ? first : 'overview';
  frame.mark(name);
  const title = t(`nav.${name}`);
  document.title = `${title} · Stint`;
  const head = h('h1', { tabindex: -1 }, title);
  const root = h('div', { class: `page ${name}`, testid: `page-${name}` });
  put(frame.main, root);
  const ctx = context(root, head, rest[0] || '', new URLSearchParams(values), signal);
  try {
    const page = await pages[name]();
    if (!signal.aborted) await page(ctx);
  } catch (error) {
    if (signal.aborted) return;
    put(root, head, problemBox(error));
  }
  if (move && !signal.aborted) head.focus({ preventScroll: true });
}

// context is what a page gets: the element to fill, its heading, what the URL says, and the
// means to stay up to date until the user leaves it.
function context(root, head, sub, params, signal) {
  const ticks = [];
  return {
    root, head, sub, params, signal,
    onLive: (listener) => onLive(listener, signal),
    // every calls run now, every ms milliseconds while the page is visible, and at refresh.
    // Errors are shown in trouble, if it is given. The promise is of the first run.
    every(ms, run, trouble) {
      const tick = once(async () => {
        if (signal.aborted) return;
        try {
          await run();
          if (trouble) put(trouble);
        } catch (error) {
          if (!signal.aborted && trouble) put(trouble, problemBox(error));
        }
      });
      ticks.push(tick);
      const timer = setInterval(() => document.hidden || tick(), ms);
      signal.addEventListener('abort', () => clearInterval(timer));
      return tick();
    },
    // refresh reads everything again, after a change.
    refresh: () => Promise.all(ticks.map((tick) => tick(true))),
    // again makes the page anew.
    again: () => show(),
  };
}

// once makes a function of run that does not run twice at a time. A call with true during a
// run makes it run once more afterwards.
function once(run) {
  let running = null;
  let more = false;
  return function tick(again = false) {
    if (running) {
      more ||= again;
      return running;
    }
    running = run().finally(() => {
      running = null;
      if (more) {
        more = false;
        return tick();
      }
      return undefined;
    });
    return running;
  };
}

window.addEventListener('hashchange', () => frame && show()); // no frame: nobody is signed in yet
window.addEventListener('unhandledrejection', (event) => {
  if (event.reason?.name === 'AbortError') event.preventDefault();
});

onSignedOut(askToken);
onSession(() => {
  render();
  start();
});
load().catch((error) => put(app, empty(t('error.start'), null, problemBox(error))));
