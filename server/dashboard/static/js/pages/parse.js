// Reads a request from what people have at hand: a curl command, an HTTP request, a line of
// an access log or of Stint's log, a URL, or the JSON of a check request.

// parse returns what it found: {how, client, method, path, host, headers, operation, cost,
// attrs, claims, domain, descriptors}, or null if the text is none of these.
export function parse(text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  return json(trimmed) || curl(trimmed) || http(trimmed) || accessLog(trimmed) || stintLog(trimmed) || url(trimmed);
}

function json(text) {
  if (!text.startsWith('{')) return null;
  let v;
  try {
    v = JSON.parse(text);
  } catch {
    return null;
  }
  if (v.path || v.method) return { how: 'log', client: v.client, method: v.method, path: v.path, host: v.host, headers: {} };
  const r = v.request || {};
  return {
    how: 'json', client: v.client, method: r.method, path: r.path, host: r.host, headers: r.headers || {},
    operation: v.operation, cost: v.cost, attrs: v.attrs, claims: v.claims, domain: v.domain, descriptors: v.descriptors, bare: !v.request,
  };
}

// words splits a command as a shell does, without expansions.
function words(text) {
  const found = [];
  const part = /'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\\r?\n|\\([^])|([^\s'"\\]+)|(\s+)/g;
  let word = null;
  for (const [all, single, double, escaped, plain, space] of text.matchAll(part)) {
    if (space !== undefined) {
      if (word !== null) found.push(word);
      word = null;
    } else if (!/^\\\r?\n$/.test(all)) {
      word = (word ?? '') + (single ?? (double !== undefined ? double.replace(/\\(["\\$`])/g, '$1') : undefined) ?? escaped ?? plain);
    }
  }
  if (word !== null) found.push(word);
  return found;
}

const takesValue = /^(-[AbeHuXdoFTmcxE]|--(request|header|user-agent|data.*|json|form|url|cookie|referer|user|output|max-time|connect-timeout|cacert|cert|key|proxy|resolve))$/;

function curl(text) {
  const all = words(text);
  if (all[0] !== 'curl') return null;
  const r = { how: 'curl', headers: {} };
  let method = '';
  let body = false;
  for (let i = 1; i < all.length; i++) {
    const [, short, rest] = /^(-[AbeHuXd])(.+)$/s.exec(all[i]) || [];
    const name = short || all[i];
    if (!name.startsWith('-')) {
      place(r, name);
      continue;
    }
    const value = rest ?? (takesValue.test(name) ? all[++i] ?? '' : '');
    if (name === '-X' || name === '--request') method = value;
    else if (name === '-H' || name === '--header') header(r, value);
    else if (name === '-A' || name === '--user-agent') r.headers['user-agent'] = value;
    else if (name === '-b' || name === '--cookie') r.headers.cookie = value;
    else if (name === '-e' || name === '--referer') r.headers.referer = value;
    else if (name === '--url') place(r, value);
    else if (name === '-I' || name === '--head') method ||= 'HEAD';
    else if (/^(-d|-F|--data.*|--json|--form)$/.test(name)) body = true;
  }
  r.method = method || (body ? 'POST' : 'GET');
  return r.path ? r : null;
}

function place(r, target) {
  const [, host, path] = /^(?:https?:\/\/)?([^/?#]*)([^#]*)/.exec(target) || [];
  if (host) r.host = host.replace(/^.*@/, '');
  r.path = !path ? '/' : path.startsWith('?') ? `/${path}` : path;
}

function header(r, line) {
  const at = line.indexOf(':');
  if (at < 1) return;
  const name = line.slice(0, at).trim().toLowerCase();
  const value = line.slice(at + 1).trim();
  if (name === 'host') r.host = value;
  else r.headers[name] = name in r.headers ? [r.headers[name], value].flat() : value;
}

function http(text) {
  const [first, ...rest] = text.split(/\r?\n/);
  const m = /^([A-Z]+) (\S+)(?: HTTP\/[\d.]+)?$/.exec(first.trim());
  if (!m) return null;
  const r = { how: 'http', method: m[1], path: m[2], headers: {} };
  if (/^https?:/.test(m[2])) place(r, m[2]);
  for (const line of rest) {
    if (!line.trim()) break;
    header(r, line);
  }
  return r;
}

// accessLog reads the common and combined formats of Apache and nginx.
function accessLog(text) {
  const m = /^(\S+) \S+ \S+ \[[^\]]*\] "([A-Z]+) (\S+)[^"]*" \d+ \S+(?: "([^"]*)" "([^"]*)")?/.exec(text);
  if (!m) return null;
  const headers = {};
  if (m[4] && m[4] !== '-') headers.referer = m[4];
  if (m[5] && m[5] !== '-') headers['user-agent'] = m[5];
  return { how: 'access', client: m[1], method: m[2], path: m[3], headers };
}

// stintLog reads a line of name=value pairs.
function stintLog(text) {
  const pairs = {};
  for (const [, name, quoted, plain] of text.matchAll(/(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))/g)) {
    pairs[name] = quoted !== undefined ? quoted.replace(/\\(.)/g, '$1') : plain;
  }
  if (!pairs.path && !pairs.method) return null;
  return { how: 'log', client: pairs.client, method: pairs.method, path: pairs.path, host: pairs.host, headers: {} };
}

function url(text) {
  if (!/^(https?:\/\/|\/)\S*$/.test(text)) return null;
  const r = { how: 'url', method: 'GET', headers: {} };
  if (text.startsWith('/')) r.path = text;
  else place(r, text);
  return r;
}
