"""A second program on a real Ray cluster holds a node, and jobs go elsewhere or wait for it; none of them fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.live.clusters.ray import LocalRay
from tests.live.service.live import Live, serving

HOLD = """
import sys, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=sys.argv[1], namespace="theirs", log_to_driver=False, logging_level="ERROR")
node = next(one["NodeID"] for one in ray.nodes() if one["Alive"] and one["Labels"].get("name") == sys.argv[2])

@ray.remote(num_cpus=4, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
class Holder:
    def there(self):
        return True

holder = Holder.remote()
ray.get(holder.there.remote())
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(cluster: LocalRay, node: str) -> Iterator[None]:
    """Another program holds all processors of a node."""
    command = [sys.executable, "-c", HOLD, cluster.address, node]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        yield
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait() == 0


def submit(live: Live, name: str, needs: dict[str, str]) -> None:
    spec = {"name": name, "resources": {"cpu": 3}, "command": ["true"], "needs": needs}
    live.ask("POST", "/v1/jobs", [spec])


def test_jobs_leave_out_a_node_that_another_program_holds(alone: None, ray_cluster: LocalRay, tmp_path: Path) -> None:
    with serving(tmp_path, "--engine", f"ray:{ray_cluster.address}") as live:
        with held(ray_cluster, "n1"):
            for name in ("first", "second"):
                submit(live, name, {"class": "fast"})
                done = live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] == "finished")
                assert [place["server"] for place in done["places"]] == ["n2"]
                assert (done["failures"], done["attempt"]) <= (0, 2)
            submit(live, "waits", {"name": "n1"})
            words = "1 server refused such jobs (n1)", "its placement group did not get ready"
            live.wait_for("/v1/jobs/waits/explain", lambda told: all(word in told["text"] for word in words))
        done = live.wait_for("/v1/jobs/waits", lambda job: job["phase"] == "finished")
        assert done["failures"] == 0
        assert [place["server"] for place in done["places"]] == ["n1"]
