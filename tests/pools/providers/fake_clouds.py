"""The strict clouds of the tests as a process: `python -m tests.pools.providers.fake_clouds`.

`manage.py bench ports` starts it, because the product does not import from tests. The first line of
stdout is JSON with the address of each cloud. Each line of stdin is an order, answered by one line:
{"cloud": "aws", "latency": 0.04, ...} sets latency and limits and empties the log, and
{"cloud": "aws"} asks for a report. The process ends with stdin.
"""

import json
import sys
from collections import Counter
from typing import Any

from tests.pools.providers.aws.elbv2_cloud import Cloud, make_buckets
from tests.pools.providers.aws.elbv2_server import serve
from tests.pools.providers.tencent.clb_server import ClbServer
from tests.pools.providers.tencent.clb_world import ClbWorld

THROTTLED = "RequestLimitExceeded"


def limit_aws(cloud: Cloud, order: dict[str, Any]) -> None:
    """`scale`: a factor of the rates of the token buckets."""
    with cloud.lock:
        cloud.latency = order["latency"]
        cloud.buckets = make_buckets(cloud.now, order["scale"])
        cloud.throttled = 0
        cloud.log.clear()


def limit_tencent(world: ClbWorld, order: dict[str, Any]) -> None:
    """`write_seconds`: the length of the task of a write."""
    with world.lock:
        world.latency, world.write_seconds = order["latency"], order["write_seconds"]
        world.calls_per_second = order["calls_per_second"]
        world.buckets.clear()
        world.log.clear()


def report_aws(cloud: Cloud) -> dict[str, object]:
    with cloud.lock:
        calls = [call for call in cloud.log if call.action in cloud.operations]
        refused = Counter(call.outcome for call in calls if call.outcome)
        return {
            "calls": Counter(call.action for call in calls),
            "refused": refused,
            "throttled": cloud.throttled,
        }


def report_tencent(world: ClbWorld) -> dict[str, object]:
    with world.lock:
        refused = Counter(call.code for call in world.log if call.code)
        return {
            "calls": Counter(call.action for call in world.log),
            "refused": refused,
            "throttled": refused[THROTTLED],
        }


def main() -> None:
    cloud, world = Cloud(), ClbWorld()
    server = ClbServer(world)
    with serve(cloud) as address:
        _write({"aws": address, "tencent": server.endpoint})
        for line in sys.stdin:
            order = json.loads(line)
            is_aws = order["cloud"] == "aws"
            if "latency" in order:
                limit_aws(cloud, order) if is_aws else limit_tencent(world, order)
            _write(report_aws(cloud) if is_aws else report_tencent(world))
    server.close()


def _write(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
