"""Tells, on the port given, how Python and what comes with it read a request's target."""
import http.server
import posixpath
import socketserver
import sys
from urllib.parse import parse_qs, unquote, urlsplit


def encoded(text):
    return text.encode("utf-8", "surrogatepass").hex() or "-"


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        target = self.requestline.split(" ")[1]
        lines = ["raw " + target.encode("latin-1").hex()]

        def reads(name, path, query):
            user = parse_qs(query, keep_blank_values=True).get("user", [""])[0]
            lines.append(" ".join([name, encoded(path), encoded(user)]))

        path, _, query = self.path.partition("?")
        reads("python-http.server", unquote(path), query)
        clean = posixpath.normpath(unquote(path))
        reads("python-normpath", clean + "/" if path.endswith("/") else clean, query)
        split = urlsplit(target)
        reads("python-urlsplit", unquote(split.path), split.query)
        body = ("\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
