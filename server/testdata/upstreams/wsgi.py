"""Tells, on the port given, which method and path an application of WSGI sees.

The method is what Django and Werkzeug (Flask) make of REQUEST_METHOD: upper case.
"""
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


def application(environ, start_response):
    body = " ".join([environ["REQUEST_METHOD"].upper(), environ["PATH_INFO"]]).encode("latin-1")
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=Quiet).serve_forever()
