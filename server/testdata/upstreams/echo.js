// Tells, on the port given, how Node and what comes with it read a request's target.
const http = require('http'), url = require('url'), querystring = require('querystring')

const hex = text => Buffer.from(text == null ? '' : String(text)).toString('hex') || '-'
const decoded = text => { try { return decodeURIComponent(text) } catch { return text } }
const first = value => Array.isArray(value) ? value[0] : value

http.createServer((request, response) => {
  const target = request.url, [path, ...query] = target.split('?')
  const parsed = query.length ? first(querystring.parse(query.join('?')).user) : ''
  const lines = ['raw ' + Buffer.from(target, 'latin1').toString('hex')]
  const reads = (name, path, user) => lines.push([name, hex(path), hex(user)].join(' '))
  reads('node-undecoded', path, parsed)
  reads('node-decoded', decoded(path), parsed)
  try {
    const whatwg = new URL(target, 'http://localhost')
    reads('node-URL', decoded(whatwg.pathname), whatwg.searchParams.get('user'))
  } catch { /* it has no answer for this one */ }
  try {
    const legacy = url.parse(target, true)
    reads('node-url.parse', decoded(legacy.pathname || ''), first(legacy.query.user))
  } catch { /* nor this */ }
  response.end(lines.join('\n') + '\n')
}).listen(Number(process.argv[2]), '127.0.0.1')
