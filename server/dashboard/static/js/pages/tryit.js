// Try it: the decision that a request would get, and why. Nothing is charged.
import { given, post } from '../api.js';
import { h, put } from '../dom.js';
import { count, keyText, span } from '../format.js';
import { code, empty, link, localNote, outcome, panel, pill, problemBox } from '../parts.js';
import { t } from '../text.js';
import { parse } from './parse.js';

const example = 'curl -X POST example.com/login -H "User-Agent: test"';

export function tryIt(ctx) {
  const inputs = {};
  const field = (name, props = {}, tag = 'input') => {
    inputs[name] = h(tag, { id: `try-${name}`, testid: `input-${name}`, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', ...props });
    return h('div', { class: `field ${props.wide ? 'two' : ''}` }, h('label', { for: `try-${name}` }, t(`try.${name}`)), inputs[name]);
  };
  const read = h('p', { class: 'hint', role: 'status', testid: 'parsed' }, t('try.paste.hint'));
  const paste = h('textarea', {
    id: 'try-paste', testid: 'input-paste', class: 'code', rows: 5, spellcheck: 'false', placeholder: example, 'aria-describedby': 'try-read',
    on: { input: () => fillFrom(paste.value) },
  });
  read.id = 'try-read';
  const result = h('div', { class: 'stack', testid: 'explanation', 'aria-live': 'polite' }, h('section', { class: 'panel' }, empty(t('try.none'), t('try.none.text'))));
  const form = h('form', { class: 'panel pad-all stack', on: { submit: explain } },
    h('div', { class: 'field' }, h('label', { for: 'try-paste' }, t('try.paste')), paste, read),
    h('div', { class: 'row' }, field('method', { value: 'GET', class: 'short' }), field('path', { value: '/', wide: true, class: 'mono' })),
    h('div', { class: 'row' }, field('client', { placeholder: '203.0.113.9', class: 'mono' }), field('host', { class: 'mono' })),
    field('headers', { rows: 3, class: 'code', placeholder: t('try.headers.example') }, 'textarea'),
    h('details', {}, h('summary', {}, t('try.more')), h('div', { class: 'stack' },
      h('div', { class: 'row' }, field('operation'), field('cost', { type: 'number', min: 0 })),
      field('attrs', { rows: 2, class: 'code', placeholder: '{"user": "u-1"}' }, 'textarea'),
      field('claims', { rows: 2, class: 'code', placeholder: '{"sub": "u-1"}' }, 'textarea'),
      field('domain', { class: 'mono' }),
      field('descriptors', { rows: 3, class: 'code', placeholder: '[{"entries": [{"key": "remote_address", "value": "203.0.113.9"}]}]' }, 'textarea'))),
    h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary', testid: 'btn-explain' }, t('try.explain')), h('span', { class: 'hint' }, t('try.free'))));
  put(ctx.root, h('div', { class: 'title' }, ctx.head), h('div', { class: 'grid halves' }, form, result));

  function fillFrom(text) {
    const r = parse(text);
    put(read, r?.unknown ? t('try.how.option', { name: r.unknown }) : text.trim() ? (r ? t(`try.how.${r.how}`) : t('try.how.none')) : t('try.paste.hint'));
    if (!r || r.unknown) return;
    for (const name of ['client', 'method', 'path', 'host', 'operation', 'cost', 'domain']) inputs[name].value = r[name] ?? '';
    if (r.bare) inputs.method.value = inputs.path.value = '';
    inputs.headers.value = Object.entries(r.headers).flatMap(([name, v]) => [v].flat().map((one) => `${name}: ${one}`)).join('\n');
    for (const name of ['attrs', 'claims', 'descriptors']) inputs[name].value = r[name] ? JSON.stringify(r[name]) : '';
    if (r.attrs || r.claims || r.operation || r.domain || r.cost !== undefined) form.querySelector('details').open = true;
  }

  async function explain(event) {
    event.preventDefault();
    let body;
    try {
      body = request(inputs);
    } catch (error) {
      put(result, problemBox(error));
      return;
    }
    try {
      const e = await post('v1/explain', body, { signal: ctx.signal });
      put(result, explanation(e));
      if (e.needs?.includes('client.ip')) inputs.client.focus();
    } catch (error) {
      if (!ctx.signal.aborted) put(result, problemBox(error));
    }
  }
}

// request is the body of the call.
function request(inputs) {
  const value = (name) => inputs[name].value.trim();
  const json = (name, list) => {
    if (!value(name)) return undefined;
    let v;
    try {
      v = JSON.parse(value(name));
    } catch {
      v = null;
    }
    if (v === null || typeof v !== 'object' || Array.isArray(v) !== list) throw new Error(t(list ? 'try.notlist' : 'try.notjson', { name: t(`try.${name}`) }));
    return v;
  };
  const headers = {};
  for (const line of value('headers').split('\n').filter((l) => l.trim())) {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(t('try.badheader', { line }));
    (headers[line.slice(0, at).trim()] ??= []).push(line.slice(at + 1).trim());
  }
  const http = !value('domain') && (value('method') || value('path')); // a call of Envoy has no request
  return given({
    client: value('client'), operation: value('operation'), cost: value('cost') && Number(value('cost')),
    attrs: json('attrs', false), claims: json('claims', false), domain: value('domain'), descriptors: json('descriptors', true),
    request: http ? given({ method: value('method') || 'GET', path: value('path') || '/', host: value('host'), headers }) : undefined,
  });
}

function explanation(e) {
  return h('div', { class: 'stack' },
    localNote(e),
    h('section', { class: 'panel pad-all stack' },
      h('div', { class: 'buttons verdict', testid: 'outcome' },
        e.outcome === 'unknown' ? [pill(t('try.unknown'), 'warn'), h('span', {}, t('try.needs', { names: e.needs.join(', ') }))] : outcome(e.outcome),
        e.rule ? h('span', {}, t('try.by'), ' ', link(['rules', { rule: e.rule }], e.rule)) : null,
        e.list ? h('span', {}, t(`bans.${e.list}`), ' ', code(e.entry)) : null)),
    e.rules.length ? panel(t('try.rules'), null, h('ol', { class: 'steps' }, e.rules.map(step))) : null,
    h('section', { class: 'panel pad-all' }, h('details', {}, h('summary', {}, t('try.words')), h('pre', { class: 'code-box', tabindex: 0 }, e.words.join('\n')))));
}

function step(r) {
  return h('li', { class: r.applies ? '' : 'aside' },
    h('div', { class: 'buttons' },
      link(['rules', { rule: r.name }], r.name, { class: 'strong' }),
      r.applies ? pill(t('try.applies'), 'accent') : pill(t('try.not')),
      r.mode === 'enforce' ? null : pill(t(`mode.${r.mode}`), 'warn'),
      h('span', { class: 'muted' }, r.why)),
    r.applies ? h('div', { class: 'num step-more' },
      r.key !== undefined ? [t('col.key'), ' ', link(['keys', { rule: r.name, key: keyText(r.key), tier: r.tier }], keyText(r.key), { class: 'mono' }), ' · '] : null,
      t('try.costs', { n: r.cost }),
      r.tier ? [' · ', t('tier', { name: r.tier })] : null,
      r.ban_left_us ? [' · ', pill(t('key.penalty', { span: span(r.ban_left_us) }), 'bad')] : null) : null,
    (r.limits || []).map((l) => h('div', { class: 'step-limit num' },
      l.allowed ? pill(t('try.fits'), 'good') : pill(t('try.exceeds'), 'bad'),
      code(l.limit),
      h('span', { class: 'muted' }, t('try.used', { used: count(l.used), capacity: count(l.capacity) }),
        l.allowed ? '' : ` · ${t('try.retry', { span: span(l.retry_after_us) })}`))));
}
