// The frame around the pages: navigation, connection, user, theme and language.
import { redraw } from './chart.js';
import { say } from './dialog.js';
import { h, put, setText } from './dom.js';
import { live, onLive } from './live.js';
import { button, pill, problemText } from './parts.js';
import { canWrite, signOut, who } from './session.js';
import { keep, language, languages, setLanguage, t } from './text.js';

export const names = ['overview', 'rules', 'keys', 'offenders', 'bans', 'alerts', 'audit', 'try'];

// shell is the frame; render makes everything again, in another language or for another
// user. It returns {main, mark(page)}.
export function shell(app, render) {
  const main = h('main', { id: 'main', tabindex: -1 });
  const badge = h('span', { class: 'badge bad', hidden: true });
  const links = new Map(names.map((name) => [name, h('a', { href: `#/${name}`, testid: `nav-${name}` },
    h('span', {}, t(`nav.${name}`)), name === 'alerts' ? badge : null)]));
  const nav = h('nav', { id: 'nav', 'aria-label': t('nav.label') }, h('ul', {}, [...links.values()].map((a) => h('li', {}, a))));
  const menu = h('button', {
    type: 'button', class: 'menu', testid: 'btn-menu', 'aria-expanded': 'false', 'aria-controls': 'side', on: { click: () => toggle() },
  }, t('nav.menu'));
  const side = h('div', { class: 'side', id: 'side' }, nav, foot(render));
  const state = h('span', { class: 'connection', testid: 'connection', role: 'status' });
  const head = h('div', { class: 'top' },
    h('a', { class: 'brand', href: '#/overview' }, mark(), 'Stint'),
    state,
    menu);
  put(app,
    h('a', { class: 'skip', href: '#main', on: { click: (e) => { e.preventDefault(); main.focus(); } } }, t('nav.skip')),
    h('div', { class: 'frame' }, h('header', { class: 'bar' }, head, side), main));
  app.setAttribute('class', 'ready');

  function toggle(open = menu.getAttribute('aria-expanded') !== 'true') {
    menu.setAttribute('aria-expanded', String(open));
    side.classList.toggle('open', open);
  }

  const ended = new AbortController();
  onLive(() => {
    state.dataset.state = live.state;
    setText(state, t(`live.${live.state}`));
    const firing = live.last?.firing || 0;
    badge.hidden = firing === 0;
    setText(badge, firing);
  }, ended.signal);

  return {
    main,
    mark(page) {
      toggle(false);
      for (const [name, a] of links) {
        if (name === page) a.setAttribute('aria-current', 'page');
        else a.removeAttribute('aria-current');
      }
    },
    end: () => ended.abort(),
  };
}

function mark() {
  const NS = 'http://www.w3.org/2000/svg';
  const make = (tag, attributes) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const image = make('svg', { viewBox: '0 0 16 16', width: 18, height: 18, 'aria-hidden': 'true' });
  image.append(make('rect', { width: 16, height: 16, rx: 3.5, class: 'mark' }),
    make('path', { d: 'M3.5 5h9M3.5 8h6M3.5 11h3', class: 'mark-lines' }));
  return image;
}

function foot(render) {
  const user = who();
  const theme = document.documentElement.dataset.theme || 'auto';
  const themes = [['auto', t('theme.auto')], ['light', t('theme.light')], ['dark', t('theme.dark')]];
  return h('div', { class: 'foot' },
    user ? h('div', { class: 'user' },
      h('span', { class: 'name', title: user.name }, user.by === 'local' ? t('user.nobody') : user.name),
      canWrite() ? null : pill(t('user.read'), 'warn')) : null,
    user?.by === 'session' ? button('signout', t('user.signout'), leave) : null,
    h('div', { class: 'choices' },
      h('select', { 'aria-label': t('theme.label'), testid: 'select-theme', on: { change: (e) => setTheme(e.target.value) } },
        themes.map(([v, text]) => h('option', { value: v, selected: v === theme }, text))),
      h('select', { 'aria-label': t('language.label'), testid: 'select-language', on: { change: (e) => { setLanguage(e.target.value); render(); } } },
        Object.entries(languages).map(([v, text]) => h('option', { value: v, lang: v, selected: v === language() }, text)))));

  async function leave() {
    try {
      await signOut();
      location.reload(); // nothing that was shown stays in memory
    } catch (error) {
      say(problemText(error), 'bad');
    }
  }
}

function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  keep('theme', theme === 'auto' ? null : theme);
  redraw();
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
