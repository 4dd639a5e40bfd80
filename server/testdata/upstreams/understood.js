// Listens on the first port given, and tells the second by a datagram, for each request,
// what Node and what comes with it understand of it. A line is a name and a text.
const http = require('http'), dgram = require('dgram'), url = require('url'), querystring = require('querystring')
const [port, to] = process.argv.slice(2).map(Number)
const socket = dgram.createSocket('udp4')

const quoted = bytes => '"' + bytes.toString('latin1').replace(/[^ !#-[\]-~]/g, c => '\\x' + c.charCodeAt(0).toString(16).padStart(2, '0')) + '"'
const decoded = text => { try { return decodeURIComponent(text) } catch { return text } }

const understood = request => {
  const lines = [], headers = request.headers
  const tell = (name, text, encoding = 'utf8') => { if (text != null) lines.push(name + ' ' + quoted(Buffer.from(String(text), encoding))) }
  const tellUser = user => { for (const one of [user].flat()) tell('user', one) }
  tell('by', 'node')
  tell('id', headers['x-id'], 'latin1')
  tell('method', request.method)
  tell('raw', request.url, 'latin1')
  tell('host', headers.host, 'latin1')
  tell('key', headers['x-api-key'], 'latin1')
  tell('client', headers['x-client'], 'latin1')
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    tell('header', request.rawHeaders[i] + ': ' + request.rawHeaders[i + 1], 'latin1')
  }
  const [path, ...query] = request.url.split('?')
  tell('path', path)
  tell('path', decoded(path))
  tellUser(querystring.parse(query.join('?')).user)
  try {
    const whatwg = new URL(request.url, 'http://localhost')
    tell('path', decoded(whatwg.pathname))
    whatwg.searchParams.getAll('user').forEach(tellUser)
  } catch { /* it has no answer for this one */ }
  try {
    const legacy = url.parse(request.url, true)
    tell('path', decoded(legacy.pathname || ''))
    tellUser(legacy.query.user)
  } catch { /* nor this */ }
  return lines.join('\n')
}

socket.connect(to, '127.0.0.1', () => {
  http.createServer((request, response) => {
    socket.send(understood(request), () => {
      request.on('error', () => {}).on('end', () => response.end('understood\n')).resume()
    })
  }).listen(port, '127.0.0.1')
})
