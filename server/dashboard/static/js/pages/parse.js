// Reads a request from what people have at hand: a curl command, an HTTP request, a line of
// an access log or of Stint's log, a URL, or the JSON of a check request.

// parse returns what it found: {how, client, method, path, host, headers, operation, cost,
// attrs, claims, domain, descriptors}, or null if the text is none of these, or {how, unknown} if a curl
// command has an option that is not known.
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

// The options of curl that say something of the request, or nothing that rules see. With the others,
// what is read could be another request than curl sends.
const valued = new Set(['-A', '-b', '-e', '-H', '-u', '-X', '-d', '-o', '-F', '-T', '-m', '-c', '-x', '-E', '-r', '-w',
  '--request', '--header', '--user-agent', '--data', '--data-raw', '--data-binary', '--data-ascii', '--data-urlencode', '--json', '--form', '--form-string',
  '--url', '--cookie', '--cookie-jar', '--referer', '--user', '--output', '--max-time', '--connect-timeout', '--retry', '--retry-delay', '--retry-max-time',
  '--cacert', '--capath', '--cert', '--cert-type', '--key', '--key-type', '--proxy', '--proxy-user', '--resolve', '--connect-to', '--interface', '--max-redirs', '--range',
  '--limit-rate', '--write-out', '--ciphers', '--tls-max', '--upload-file', '--oauth2-bearer']);
const bare = new Set(['-s', '-S', '-k', '-v', '-i', '-L', '-f', '-g', '-O', '-J', '-N', '-4', '-6', '-#', '-0', '-I', '-G',
  '--silent', '--show-error', '--insecure', '--verbose', '--include', '--location', '--fail', '--fail-with-body', '--globoff', '--remote-name', '--no-buffer',
  '--ipv4', '--ipv6', '--progress-bar', '--http1.0', '--http1.1', '--http2', '--http2-prior-knowledge', '--http3', '--head', '--get', '--compressed', '--no-progress-meter',
  '--tlsv1.2', '--tlsv1.3', '--no-keepalive', '--tcp-nodelay', '--path-as-is', '--location-trusted', '--retry-connrefused', '--retry-all-errors', '--create-dirs']);

// options splits words into pairs of an option and its value; null: it is the URL. One that is not known
// is returned alone.
function options(all) {
  const pairs = [];
  for (let i = 1; i < all.length; i++) {
    let name = all[i];
    if (!name.startsWith('-') || name === '-') {
      pairs.push([null, name]);
    } else if (name.startsWith('--')) {
      if (valued.has(name)) pairs.push([name, all[++i] ?? '']);
      else if (bare.has(name)) pairs.push([name, '']);
      else return name;
    } else {
      for (let rest = name.slice(1); rest;) { // -sXPOST is -s -X POST
        name = `-${rest[0]}`;
        rest = rest.slice(1);
        if (valued.has(name)) {
          pairs.push([name, rest || (all[++i] ?? '')]);
          rest = '';
        } else if (bare.has(name)) {
          pairs.push([name, '']);
        } else {
          return name;
        }
      }
    }
  }
  return pairs;
}

function curl(text) {
  const all = words(text);
  if (all[0] !== 'curl') return null;
  const pairs = options(all);
  if (typeof pairs === 'string') return { how: 'curl', unknown: pairs };
  const r = { how: 'curl', headers: {} };
  let method = '';
  const data = [];
  let get = false;
  let body = '';
  for (const [name, value] of pairs) {
    if (name === null || name === '--url') place(r, value);
    else if (name === '-X' || name === '--request') method = value;
    else if (name === '-H' || name === '--header') header(r, value);
    else if (name === '-A' || name === '--user-agent') r.headers['user-agent'] = value;
    else if (name === '-b' || name === '--cookie') r.headers.cookie = value;
    else if (name === '-e' || name === '--referer') r.headers.referer = value;
    else if (name === '-u' || name === '--user') r.headers.authorization = `Basic ${base64(value)}`;
    else if (name === '--oauth2-bearer') r.headers.authorization = `Bearer ${value}`;
    else if (name === '-I' || name === '--head') method ||= 'HEAD';
    else if (name === '-G' || name === '--get') get = true;
    else if (name === '-T' || name === '--upload-file') method ||= 'PUT';
    else if (/^(-d|-F|--data.*|--json|--form.*)$/.test(name)) {
      body = name === '--json' ? 'application/json' : body || (/^(-F|--form)/.test(name) ? 'multipart/form-data' : 'application/x-www-form-urlencoded');
      data.push(value);
    }
  }
  if (!r.path) return null;
  if (get && body) r.path += (r.path.includes('?') ? '&' : '?') + data.join('&');
  else if (body) r.headers['content-type'] ??= body;
  r.method = method || (body && !get ? 'POST' : 'GET');
  return r;
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
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
