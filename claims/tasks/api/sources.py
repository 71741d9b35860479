"""Upload the archive of a task before the claim that names it."""

from django.http import HttpResponse
from rest_framework import serializers

from claims.allocation.api.claims import TAG
from claims.tasks.files.sources import SOURCE_BYTES, store_source
from pools.access.permissions import require_anywhere
from pools.http.endpoint import describe
from pools.http.fast_view import FastRequest, LeanEndpoint, answer

TYPES = ("application/octet-stream", "application/gzip", "application/x-gzip", "application/zip")
BINARY = {"type": "string", "format": "binary"}


class SourceAnswer(serializers.Serializer[object]):
    digest = serializers.CharField(help_text="The value of run.source.archive.")
    size = serializers.IntegerField()
    files = serializers.IntegerField()


class SourceList(LeanEndpoint):
    @describe(
        "Upload a source",
        {201: SourceAnswer},
        body=BINARY,
        media=TYPES[0],
        problems=(422, 507),
        name="upload_source",
        tag=TAG,
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """The body is a tar.gz or a zip. Berth packs its files again, without owners and times, and
        rejects paths that lead out of the archive. A source that no claim names is deleted after a
        day. Each user may keep BERTH_SOURCE_QUOTA bytes (413 `source_quota`, with `used` and
        `allowed`).
        """
        require_anywhere(call.identity, "claim")
        kept = store_source(
            call.read_raw(SOURCE_BYTES, "The archive", TYPES), made_by=call.identity.requester
        )
        return answer({"digest": kept.digest, "size": kept.size, "files": kept.files}, 201)
