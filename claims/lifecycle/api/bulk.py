"""REST to create or release up to 1,000 claims in one call. Each item is handled independently:
its status and body are those of the single call.
"""

from collections.abc import Mapping

from django.http import HttpResponse

from claims.allocation.api import api_sql, schemas
from claims.allocation.api.claims import TAG, status_of
from claims.allocation.api.permissions import require_on_claims, require_to_create
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import ClaimRequest, read_claim
from claims.allocation.selectors import no_such_claim
from claims.lifecycle.release import release_claims
from pools.access.permissions import Identity
from pools.config.parsing import Faults, read_integer, read_mapping
from pools.http.endpoint import describe
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from project.kernel.errors import BerthError, Invalid, wrong_field
from project.kernel.http.api_base import BIGINT
from project.kernel.http.problems import describe as describe_problem

MAX_ITEMS = 1000


class BulkCreate(LeanEndpoint):
    @describe(
        "Claim many",
        {200: schemas.BulkAnswer},
        body=schemas.BULK_BODY,
        name="create_claims",
        tag=TAG,
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """A key in each item makes the call safe to repeat. The call counts as one request for
        the rate limit.
        """
        found = [read_item(item, call.identity) for item in read_items(call)]
        allowed = [request for request in found if isinstance(request, ClaimRequest)]
        made = iter(create_claims(allowed))
        return answer(
            {
                "results": [
                    show_item(next(made) if isinstance(item, ClaimRequest) else item)
                    for item in found
                ]
            }
        )


class BulkRelease(LeanEndpoint):
    @describe(
        "Release many",
        {200: schemas.BulkAnswer},
        body=schemas.BULK_RELEASE_BODY,
        name="release_claims",
        tag=TAG,
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """Each item names a claim and its generation. The call is safe to repeat."""
        items = [read_hold(item) for item in read_items(call)]
        access = require_on_claims(
            call.identity, {item[0] for item in items if not isinstance(item, BerthError)}
        )
        found = [
            item if isinstance(item, BerthError) else check_hold(item, access) for item in items
        ]
        done = iter(release_claims([item for item in found if not isinstance(item, BerthError)]))
        return answer(
            {
                "results": [
                    show_item(item if isinstance(item, BerthError) else next(done), 200)
                    for item in found
                ]
            }
        )


def read_items(call: FastRequest, name: str = "claims", most: int = MAX_ITEMS) -> list[object]:
    faults = Faults()
    body = call.read()
    given = read_mapping(body, "", (name,), faults)
    faults.raise_if_any()
    items = given.get(name)
    if not isinstance(items, list) or not 1 <= len(items) <= most:
        what = (
            f"There are {len(items)} items." if isinstance(items, list) else "This is not a list."
        )
        raise wrong_field(name, what, f"Send a list of 1 to {most} {name}.")
    return items


def read_item(item: object, identity: Identity) -> ClaimRequest | BerthError:
    request, faults = read_claim(item, requested_by=identity.requester)
    if request is None:
        return Invalid(fields=faults)
    try:
        require_to_create(identity, request)
    except BerthError as error:
        return error
    return request


def read_hold(item: object) -> tuple[int, int] | BerthError:
    faults = Faults()
    given = read_mapping(
        item,
        "",
        ("id", "generation"),
        faults,
        required=("id", "generation") if isinstance(item, dict) else (),
    )
    claim_id = read_integer(given, "", "id", faults, 1, BIGINT, 0)
    generation = read_integer(given, "", "generation", faults, 0, BIGINT, 0)
    return Invalid(fields=faults.found) if faults.found else (claim_id, generation)


def check_hold(
    item: tuple[int, int], access: Mapping[int, api_sql.ClaimsAccessRow | BerthError]
) -> tuple[int, int] | BerthError:
    row = access.get(item[0])
    if row is None:
        return no_such_claim(item[0])
    return row if isinstance(row, BerthError) else item


def show_item(found: ClaimView | BerthError, status: int = 0) -> dict[str, object]:
    if isinstance(found, BerthError):
        problem, _ = describe_problem(found)
        return {"status": problem["status"], "body": problem}
    return {"status": status or status_of(found), "body": found.as_dict()}
