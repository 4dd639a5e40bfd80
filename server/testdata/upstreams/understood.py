"""Listens on the first port given, and tells the second by a datagram, for each request,
what Python and what comes with it understand of it. A line is a name and a text.

Requests are read by http.server, and the environment of WSGI is made by wsgiref.
"""
import http.server
import posixpath
import re
import socket
import socketserver
import sys
import wsgiref.simple_server
from urllib.parse import parse_qs, unquote, urlsplit

out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect(("127.0.0.1", int(sys.argv[2])))


def utf8(text):
    return text.encode("utf-8", "surrogatepass")


class Understood(wsgiref.simple_server.WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    handle = http.server.BaseHTTPRequestHandler.handle  # which serves more than one

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        out.send(b"\n".join(self.lines()))
        if not self.drain():
            self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def lines(self):
        lines = []

        def tell(name, data):
            text = re.sub(r'[^ !#-\[\]-~]', lambda c: "\\x%02x" % ord(c[0]), data.decode("latin-1"))
            lines.append(f'{name} "{text}"'.encode())

        def tell_header(name, text):
            if text is not None:
                tell(name, text.encode("latin-1"))

        def tell_query(query):
            query = query.encode("latin-1").decode("utf-8", "replace")  # as Django and Werkzeug do
            try:
                for user in parse_qs(query, keep_blank_values=True).get("user", []):
                    tell("user", utf8(user))
            except ValueError:
                pass  # too many of them

        environ = self.get_environ()
        tell("by", b"python")
        tell_header("id", environ.get("HTTP_X_ID"))
        tell("method", utf8(self.command))
        tell("method", utf8(environ["REQUEST_METHOD"].upper()))  # as Django and Werkzeug have it
        target = self.requestline.split(" ")[1]
        tell("raw", target.encode("latin-1"))
        tell_header("host", environ.get("HTTP_HOST"))
        for key in self.headers.get_all("X-Api-Key", []):
            tell_header("key", key)
        tell_header("key", environ.get("HTTP_X_API_KEY"))
        tell_header("client", environ.get("HTTP_X_CLIENT"))
        for name, value in self.headers.items():
            tell_header("header", f"{name}: {value}")

        path, _, query = self.path.partition("?")
        tell("path", utf8(unquote(path)))
        clean = posixpath.normpath(unquote(path))
        tell("path", utf8(clean + "/" if path.endswith("/") and clean != "/" else clean))
        tell("path", environ["PATH_INFO"].encode("latin-1"))
        tell_query(query)
        tell_query(environ["QUERY_STRING"])
        try:
            split = urlsplit(target)
            tell("path", utf8(unquote(split.path)))
            tell_query(split.query)
        except ValueError:
            pass  # a malformed host
        return lines

    def drain(self):
        """Reads the body, and tells whether the connection can be used again."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while True:
                try:
                    size = int(self.rfile.readline().split(b";")[0], 16)
                except ValueError:
                    return False
                self.rfile.read(size)
                if size == 0:
                    while self.rfile.readline().strip():
                        pass
                    return True
                self.rfile.readline()
        try:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        except ValueError:
            return False
        return True

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
    base_environ = {}

    def handle_error(self, *args):
        pass  # a client that has left


Server(("127.0.0.1", int(sys.argv[1])), Understood).serve_forever()
