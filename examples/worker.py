"""A worker that holds what a job may cost, and settles what it did cost: docs/holds.md.

It asks Stint's check API, and its rule has `hold` in its limits and `cost: cost`. A job has
user, rows_expected, rows_done and run().
"""

import json, threading, time, urllib.error, urllib.request


def call(path, **body):
    request = urllib.request.Request("http://localhost:8082" + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request, timeout=5))
    except urllib.error.HTTPError as refusal:
        return json.load(refusal)
    except OSError:  # no connection, or no answer in time
        return {}


def run(job):
    answer = call("/v1/check", operation="export", attrs={"user": job.user}, cost=job.rows_expected, hold="60s")
    if not answer.get("allowed"):
        return False  # try again after answer["retry_after_us"]
    if "hold" not in answer:  # nothing is held, so there is nothing to settle
        job.run()
        return True
    done = threading.Event()

    def renew():
        while not done.wait(20):  # a third of the time
            call("/v1/renew", hold=answer["hold"])

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        job.run()
    finally:
        done.set()
        renewing.join()
        while "outcome" not in call("/v1/settle", hold=answer["hold"], cost=job.rows_done):
            time.sleep(1)  # 503: send it again, it is charged once
    return True
