package main

import "testing"

// examples/worker.py holds what jobs may cost, and settles their true cost: beside a job that runs there is
// no room for another of this size, and afterwards only the true costs are used.
func TestWorkerExample(t *testing.T) {
	runText(t, "examples/worker.py", "Write `stint.yaml`:\n\n```yaml\n"+`rules:
  - {name: export, key: attrs.user, limits: [100 per 1h fixed_window hold], cost: cost}
`+"```\n\nWrite `jobs.py`:\n\n```python\n"+`import worker

class Job:
    user, rows_expected, rows_done = "ann", 60, 10

    def __init__(self, inner=None):
        self.inner = inner

    def run(self):
        if self.inner:
            print("meanwhile", worker.run(self.inner))

print("first", worker.run(Job(Job())))
print("second", worker.run(Job()))
print("left", worker.call("/v1/check", operation="export", attrs={"user": "ann"}, cost=0)["remaining"])
`+"```\n\n```sh\n"+`cp "$STINT_SOURCE/examples/worker.py" .
stint serve --config stint.yaml > stint.log 2>&1 &
curl -s --retry 100 --retry-delay 1 --retry-connrefused -o /dev/null localhost:8082/healthz
python3 jobs.py
`+"```\n\n```text\nmeanwhile False\nfirst True\nsecond True\nleft 80\n```\n")
}
