"""S3, or any service that speaks like it, as the archive's store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from relevo.config import Settings
from relevo.core.errors import ArchiveError, ArchiveMissingError, ArchiveMonthError
from relevo.core.logs import scrub
from relevo.core.model import StoredObject

_WHOLE = 64 << 20  # up to this size an object goes in one request
_PIECE = 32 << 20
_CHUNK = 1 << 20
_IS_THERE = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_NOT_THERE = ("NoSuchKey", "404", "NotFound")
_NO_BUCKET = ("NoSuchBucket", "InvalidBucketName")
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403", "401")
_COLD = ("InvalidObjectState",)
_CANNOT = ("NotImplemented", "501")
_NOT_OURS = ("AccessDenied", "NoSuchUpload", *_CANNOT)
_log = structlog.get_logger("relevo.archive")
_CREDENTIALS = "Credentials come from the usual places: AWS_ACCESS_KEY_ID and its kin, a profile, the machine's role."


class S3Store:
    """Objects in a bucket."""

    def __init__(self, settings: Settings) -> None:
        import boto3  # noqa: PLC0415 a quarter of a second that only those with a bucket spend
        from botocore.config import Config  # noqa: PLC0415

        assert settings.archive_bucket is not None
        self._bucket = settings.archive_bucket
        self._prefix = f"{settings.archive_prefix}/"
        self._endpoint = settings.archive_endpoint
        self._encryption = _encryption(settings)
        timeout_s = settings.archive_timeout_ms / 1000
        self._path_style = settings.archive_path_style
        host = f"{settings.archive_bucket}.s3.{settings.archive_region or 'us-east-1'}.amazonaws.com"
        self._proxy = settings.proxies.for_url(self._endpoint or f"https://{host}")
        self._session: Any = boto3.session.Session()
        self._client: Any = self._session.client(
            "s3",
            region_name=settings.archive_region or ("us-east-1" if self._endpoint else None),
            endpoint_url=self._endpoint,
            config=Config(
                connect_timeout=min(timeout_s, 10.0),
                read_timeout=timeout_s,
                # said in full, or boto3 would look for one itself
                proxies={"http": self._proxy, "https": self._proxy} if self._proxy else {},
                retries={"mode": "standard", "max_attempts": 4},
                s3={"addressing_style": "path" if settings.archive_path_style else "auto"},
                # our own SHA-256 travels with each request; more than that not every service understands
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    @property
    def name(self) -> str:
        """The bucket and prefix, and the service if it is not AWS."""
        where = f" at {scrub(self._endpoint)}" if self._endpoint else ""
        return f"s3://{self._bucket}/{self._prefix.rstrip('/')}{where}"

    def put(self, key: str, path: Path, *, replace: bool = False) -> bool:
        """Upload a file, in pieces if it is large; the service compares our SHA-256, and keeps what is there."""
        upload = self._put_in_pieces if path.stat().st_size > _WHOLE else self._put_whole
        condition = {} if replace else {"IfNoneMatch": "*"}
        with self._complaining(key):
            if condition and self._exists(key):  # not every service heeds the condition
                return False
            try:
                upload(self._prefix + key, path, condition)
            except Exception as error:
                code = _code(error)
                if condition and code in _IS_THERE:
                    return False
                if not condition or code not in _CANNOT:
                    raise
                if self._exists(key):  # a service that knows no conditions; there is one exporter, and it reads back
                    return False
                upload(self._prefix + key, path, {})
        return True

    def _put_whole(self, key: str, path: Path, condition: dict[str, str]) -> None:
        with path.open("rb") as body:
            sent = base64.b64encode(hashlib.file_digest(body, "sha256").digest()).decode()
            body.seek(0)
            given = {"Bucket": self._bucket, "Key": key, "ChecksumSHA256": sent} | condition | self._encryption
            self._client.put_object(Body=body, **given)

    def _put_in_pieces(self, key: str, path: Path, condition: dict[str, str]) -> None:
        place = {"Bucket": self._bucket, "Key": key}
        begun = self._client.create_multipart_upload(ChecksumAlgorithm="SHA256", **place, **self._encryption)
        place["UploadId"] = begun["UploadId"]
        try:
            pieces = []
            with path.open("rb") as body:
                for number, piece in enumerate(iter(lambda: body.read(_PIECE), b""), start=1):
                    sent = base64.b64encode(hashlib.sha256(piece).digest()).decode()
                    done = self._client.upload_part(Body=piece, PartNumber=number, ChecksumSHA256=sent, **place)
                    pieces.append({"ETag": done["ETag"], "PartNumber": number, "ChecksumSHA256": sent})
            self._client.complete_multipart_upload(MultipartUpload={"Parts": pieces}, **place, **condition)
        except BaseException:
            with suppress(Exception):  # what went wrong is worth telling, this is not: tidying aborts it later
                self._client.abort_multipart_upload(**place)
            raise

    def fetch(self, key: str, path: Path) -> None:
        """Download an object."""
        with self._complaining(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            with path.open("wb") as file:
                for chunk in answer["Body"].iter_chunks(_CHUNK):
                    file.write(chunk)
        size, expected = path.stat().st_size, answer["ContentLength"]
        if size != expected:
            raise ArchiveError(
                f"{key} came from {self.name} cut short: {size} of {expected} bytes.", hint="Relevo tries again."
            )

    def listing(self, prefix: str) -> Sequence[StoredObject]:
        """List the bucket, page by page."""
        pages = self._client.get_paginator("list_objects_v2")
        with self._complaining(prefix):
            return [
                StoredObject(each["Key"].removeprefix(self._prefix), each["Size"])
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
                for each in page.get("Contents", [])
            ]

    def tidy(self, prefix: str) -> None:
        """Abort the uploads in pieces that processes left when they died; where we may not, the bucket's owner may."""
        place = {"Bucket": self._bucket}
        with self._complaining(prefix):
            try:
                begun = self._client.list_multipart_uploads(Prefix=self._prefix + prefix, **place)
                for each in begun.get("Uploads", []):
                    if each["Key"].startswith(self._prefix + prefix):
                        self._client.abort_multipart_upload(Key=each["Key"], UploadId=each["UploadId"], **place)
            except self._client.exceptions.ClientError as error:
                if _code(error) not in _NOT_OURS:
                    raise
                _log.warning("archive_not_tidied", store=self.name, prefix=prefix, code=_code(error))

    def arrow_filesystem(self) -> tuple[Any, str]:
        """Read the bucket with the same credentials."""
        from pyarrow.fs import S3FileSystem  # noqa: PLC0415 only queries need it

        frozen = self._credentials()
        where = urlsplit(self._endpoint) if self._endpoint else None
        filesystem = S3FileSystem(
            access_key=frozen.access_key,
            secret_key=frozen.secret_key,
            session_token=frozen.token,
            region=self._client.meta.region_name,
            endpoint_override=where.netloc if where else None,
            scheme=where.scheme if where else "https",
            force_virtual_addressing=not self._path_style and where is not None,
            proxy_options=self._proxy,
        )
        return filesystem, f"{self._bucket}/{self._prefix.rstrip('/')}"

    def warehouse(self) -> tuple[str, dict[str, str]]:
        """Name the bucket, with the same credentials."""
        frozen = self._credentials()
        access = {
            "s3.access-key-id": frozen.access_key,
            "s3.secret-access-key": frozen.secret_key,
            "s3.session-token": frozen.token,
            "s3.region": self._client.meta.region_name,
            "s3.endpoint": self._endpoint,
            "s3.proxy-uri": self._proxy,
            "s3.force-virtual-addressing": str(not self._path_style and self._endpoint is not None),
        }
        location = f"s3://{self._bucket}/{self._prefix.rstrip('/')}"
        return location, {name: value for name, value in access.items() if value}

    def _credentials(self) -> Any:
        found = self._session.get_credentials()
        if found is None:
            raise ArchiveError(f"There are no credentials for {self.name}.", hint=_CREDENTIALS)
        return found.get_frozen_credentials()

    def _bucket_is_missing(self) -> bool:
        """Ask for the bucket alone: some services deny what others miss."""
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except Exception as error:  # noqa: BLE001 whatever else it is, it is told already
            return _code(error) in (*_NOT_THERE, *_NO_BUCKET)
        return False

    def _exists(self, key: str) -> bool:
        return any(each.key == key for each in self.listing(key))

    @contextmanager
    def _complaining(self, key: str) -> Iterator[None]:
        import botocore.exceptions as boto  # noqa: PLC0415 loaded with the client

        try:
            yield
        except boto.ClientError as error:
            raise self._complaint(key, _code(error), error) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as error:
            raise ArchiveError(f"There are no credentials for {self.name}.", hint=_CREDENTIALS) from error
        except (boto.IncompleteReadError, boto.ResponseStreamingError) as error:
            raise ArchiveError(f"{key} came from {self.name} cut short.", hint="Relevo tries again.") from error
        except boto.BotoCoreError as error:  # no connection, a timeout, a broken answer
            raise ArchiveError(
                f"{self.name} did not answer: {scrub(str(error))[:200]}",
                hint="Check ARCHIVE_ENDPOINT and the service. The next run tries again.",
            ) from error
        except OSError as error:
            raise ArchiveError(
                f"{key} cannot be read or kept on this machine: {error.strerror}.",
                hint="Check whether its disk is full.",
            ) from error

    def _complaint(self, key: str, code: str, error: Exception) -> ArchiveError:
        if code in _NOT_THERE:
            return ArchiveMissingError(f"There is no {key} in {self.name}.")
        if code in _COLD:
            return ArchiveMonthError(
                f"{key} in {self.name} is in cold storage.",
                hint="Restore the object at the service, and exclude this prefix from its lifecycle rule.",
            )
        if code in _NO_BUCKET or (code == "AccessDenied" and self._bucket_is_missing()):
            return ArchiveError(f"There is no bucket {self._bucket}.", hint="Create it, or correct ARCHIVE_BUCKET.")
        if code in _REFUSED:
            return ArchiveError(f"{self.name} refused our credentials ({code}).", hint=_CREDENTIALS)
        said = scrub(str(error))[:200]
        return ArchiveError(f"{self.name} refused {key}: {said}", hint="The next run tries again.")


def _encryption(settings: Settings) -> dict[str, str]:
    if settings.archive_sse == "none":
        return {}
    key = {"SSEKMSKeyId": settings.archive_sse_kms_key_id} if settings.archive_sse_kms_key_id else {}
    return {"ServerSideEncryption": settings.archive_sse} | key


def _code(error: Exception) -> str:
    response: dict[str, Any] = getattr(error, "response", None) or {}  # a timeout has the field, and nothing in it
    code = str(response.get("Error", {}).get("Code", ""))
    return code or str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
