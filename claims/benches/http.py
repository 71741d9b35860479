"""Claims over HTTP compared with a plain view of the same server, and the bulk endpoint."""

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from uuid import uuid4

from claims.benches.http_client import HttpConnection
from claims.benches.processes import make_token, web_server
from claims.benches.rows.seed import analyze_claims, fill_pools
from project.kernel.bench.registry import BenchRun, Goal, bench

ITEMS = 500  # of one bulk call


class BenchCaller:
    """One connection. Each slice chooses its call."""

    def __init__(
        self,
        k: int,
        n: int,
        host: str,
        port: int,
        token: str,
        names: Sequence[str],
        items: int = ITEMS,
    ) -> None:
        self.line, self.names, self.items = HttpConnection(host, port, token), list(names), items
        self.k, self.numbers, self.draw = k, itertools.count(), random.Random(k)
        self.call: Callable[[], int] = self.health

    def begin(self, what: str = "health") -> None:
        self.call = {"health": self.health, "claim": self.claim, "bulk": self.bulk}[what]

    def __call__(self) -> int:
        return self.call()

    def health(self) -> int:
        return int(self.line.get("/healthz")[0] == 200)

    def body(self) -> dict[str, object]:
        return {
            "pools": [self.draw.choice(self.names)],
            "owner": f"pod:{self.k}:{next(self.numbers)}",
        }

    def claim(self) -> int:
        status, answer = self.line.post(
            "/api/v1/claims/", json.dumps(self.body()).encode(), str(uuid4())
        )
        if status != 201:
            raise RuntimeError(f"{status}: {answer[:500]!r}")
        return 1

    def bulk(self) -> int:
        name = self.draw.choice(self.names)
        items = [{**self.body(), "pools": [name], "key": str(uuid4())} for _ in range(self.items)]
        status, answer = self.line.post(
            "/api/v1/claims/bulk/", json.dumps({"claims": items}).encode()
        )
        results = json.loads(answer).get("results", []) if status == 200 else []
        bound = sum(item["status"] == 201 for item in results)
        if bound != self.items:
            raise RuntimeError(f"{status}, {bound} of {self.items} bound: {answer[:500]!r}")
        return bound


@bench(
    "http",
    (
        "one claim over HTTP, created and bound, against the same server's /healthz; the bulk "
        "endpoint against R"
    ),
    [Goal("ratio_to_healthz", 0.45), Goal("bulk_ratio", 1.1)],
)
def bench_http(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 12_800) if run.is_quick else (20, 12_800)
    filled = fill_pools("http", pools, each)
    connections, items = (2, 50) if run.is_quick else (8, ITEMS)
    options = {"token": make_token("bench"), "names": filled.names, "items": items}
    late: list[float] = []
    claims: list[float] = []
    with (
        web_server() as (host, port),
        run.workers(
            "claims.benches.http.BenchCaller", connections, host=host, port=port, **options
        ) as workers,
    ):

        def claim() -> float:
            done = workers.slice(run.seconds(2.0), what="claim")
            late.append(done.percentile_ms(0.99))
            claims.append(done.rate)
            return done.rate

        for what in ("health", "claim", "bulk"):
            workers.slice(run.seconds(1.0, 0.2), what=what)
        analyze_claims()
        workers.slice(run.seconds(0.5, 0.2), what="claim")  # plans anew
        ratio, ratios = run.interleave(
            claim, lambda: workers.slice(run.seconds(2.0), what="health").rate
        )
        bulk = run.compare(lambda: workers.slice(run.seconds(1.0), what="bulk").rate)
    return {
        "ratio_to_healthz": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios],
        "claims_per_second": round(median(claims)),
        "p99_ms": round(median(late), 1),
        "bulk_ratio": round(bulk.ratio, 3),
        "bulk": bulk.as_dict(),
        "connections": connections,
    }
