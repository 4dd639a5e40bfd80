// The stream of server-sent events with the state of the fleet, one each second. All parts of
// the page share one stream, which is closed while the page is hidden: a browser allows six
// connections to a server, and other tabs need some.
import { get } from './api.js';

const listeners = new Set();
const silence = 6_000; // ms without an event, after which the stream counts as lost
const hiddenFor = 10_000; // ms until the stream of a hidden page is closed

let source = null;
let wait = 1_000; // ms until the next attempt
let timers = { retry: 0, silent: 0, hidden: 0 };

// live.last is the last event, live.state "connecting", "live" or "lost".
export const live = { last: null, state: 'connecting', since: 0 };

// onLive calls listener(live) with each event and change of the state until signal aborts.
export function onLive(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener('abort', () => listeners.delete(listener));
  listener(live);
}

function tell() {
  for (const listener of [...listeners]) listener(live);
}

function become(state) {
  if (live.state === state) return;
  live.state = state;
  live.since = Date.now();
  tell();
}

// start opens the stream; it may be called again after a sign-in.
export function start() {
  stop();
  source = new EventSource('v1/live', { withCredentials: true });
  source.onmessage = (event) => {
    try {
      live.last = JSON.parse(event.data);
    } catch {
      return;
    }
    wait = 1_000;
    watch();
    if (live.state === 'live') tell();
    else become('live');
  };
  source.onerror = failed;
  watch();
}

function watch() {
  clearTimeout(timers.silent);
  timers.silent = setTimeout(failed, silence);
}

export function stop() {
  source?.close();
  source = null;
  clearTimeout(timers.retry);
  clearTimeout(timers.silent);
}

// failed tries again later. The call finds out whether the session has ended, which an
// EventSource cannot tell.
async function failed() {
  stop();
  become('lost');
  await get('v1/session').catch(() => {});
  clearTimeout(timers.retry);
  timers.retry = setTimeout(start, wait + Math.random() * 500);
  wait = Math.min(wait * 2, 30_000);
}

// The browser may keep a page that the user has left, to come back to it. Its stream would use
// one of the six connections, and after six pages nothing would load any more.
window.addEventListener('pagehide', stop);
window.addEventListener('pageshow', (event) => {
  if (event.persisted) start();
});
document.addEventListener('visibilitychange', () => {
  clearTimeout(timers.hidden);
  if (document.hidden) timers.hidden = setTimeout(stop, hiddenFor);
  else if (!source) start();
});
