"""`run_job` and `upload`: from a script on a laptop to groups that run it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planaria.aws.apply import carry_out, filled
from planaria.aws.boot import store_user_data, worker_user_data
from planaria.aws.code import Shipped, pin, ship, ship_whole
from planaria.aws.desk import Desk
from planaria.aws.hosts import StoreHost, WorkerHost
from planaria.aws.model import JobSeen
from planaria.aws.names import (
    PLAN_TAG,
    RUN_TAG,
    Names,
    Place,
    expiry,
    owner_name,
    run_name,
    tags,
)
from planaria.aws.plan import Code, Order, Sizes, fingerprint, launch_flags, plan_run, sizes_of
from planaria.aws.specs import Host, Specs, Store
from planaria.aws.status import INCOMPLETE, REMOVING, state_of
from planaria.aws.steps import Call, Kind, Plan, Step
from planaria.aws.survey import image_of, look_for
from planaria.base.usage import quoted
from planaria.errors import UsageError
from planaria.ship.description import Description, encode
from planaria.ship.source import ARCHIVES, Stored, is_archive, source_of

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Draft:
    """A job before it has a run's name."""

    specs: Specs
    sizes: Sizes
    shipped: Shipped
    region: str
    endpoint: str | None  # of AWS, which the hosts are told


def run_job(desk: Desk) -> int:
    """Start a job, or print how it would be started."""
    options = desk.options
    specs = desk.specs
    assert specs is not None, "run_job has no meaning without --specs_file"
    sizes = sizes_of(options.size, options.min_size, options.max_size)
    endpoint = _endpoint(desk.environ.get("AWS_ENDPOINT_URL"))
    place = Place(specs.worker.s3_bucket, specs.worker.s3_prefix)
    with tempfile.TemporaryDirectory(prefix="petctl-") as folder:
        shipped = ship(options.source, options.script, place, options.job, folder, inside=options.no_upload)
        for line in (*specs.warnings, *shipped.notes):
            desk.say(line)
        if endpoint is not None:
            desk.say(f"AWS_ENDPOINT_URL is set, so the hosts are told {endpoint}, too, and have to reach it")
        draft = _Draft(specs, sizes, shipped, desk.cloud.region, endpoint)
        if options.dry_run:
            desk.show_plan(plan_run(_order(desk, draft, _new_tags(desk), _unasked_images(specs))))
            return 0
        return _submit(desk, draft)


def _submit(desk: Desk, draft: _Draft) -> int:
    job = desk.options.job
    draft = replace(draft, shipped=pin(draft.shipped, desk.cloud))
    order = _order(desk, draft, _new_tags(desk), _images(desk, draft.specs))
    claimed = look_for(desk.cloud, job)
    if claimed is not None:
        if (claimed.claim or {}).get(PLAN_TAG) != fingerprint(order) or state_of(claimed) != INCOMPLETE:
            raise _taken(claimed)
        desk.say(f"run {claimed.run} of job {job} was not made whole: going on with it")
        order = _order(desk, draft, _old_tags(claimed), order.images)
    plan = plan_run(order)
    carry_out(plan, desk.hands, desk.noise(_TOKEN_BYTES))
    told = {"job": job, "run": order.run, "source": draft.shipped.source, "sha256": draft.shipped.sha256}
    # Who comes back later has no specs file, so the region that stands in one has to be typed.
    where = f" --region {draft.region}" if desk.options.region or draft.specs.region else ""
    desk.answer(
        f"job {job} is started, run {order.run}\n"
        f"  petctl logs -f {job}{where}    what it prints\n"
        f"  petctl wait {job}{where}       until it ends, with its status\n"
        f"  petctl stop {job}{where}       drain it; petctl kill_job {job}{where} ends it and removes everything\n",
        {**told, "region": draft.region},
    )
    return 0


def _taken(found: JobSeen) -> UsageError:
    state = state_of(found)
    way = "try again in a minute" if state == REMOVING else f"`petctl kill_job {found.job}` removes that job"
    return UsageError(
        f"--name {found.job!r} is in use: run {found.run or 'unknown'} of {found.owner or 'somebody'} is {state}",
        hint=f"choose another name, or {way}",
    )


def _new_tags(desk: Desk) -> Mapping[str, str]:
    options = desk.options
    owner = options.owner or desk.environ.get("USER") or desk.environ.get("LOGNAME") or "unknown"
    now = desk.utc()
    return tags(options.job, run_name(now, desk.noise(3)), owner_name(owner), expiry(now, options.expires))


def _old_tags(found: JobSeen) -> Mapping[str, str]:
    return tags(found.job, found.run, found.owner, found.expires)


def _unasked_images(specs: Specs) -> dict[str, str]:
    return {role: host.image_id or f"resolve:ssm:{host.image_parameter}" for role, host in _hosts(specs)}


def _images(desk: Desk, specs: Specs) -> dict[str, str]:
    """Return image ids, as the parameters have them now: hosts that come later are made of the same image."""
    found = {}
    for role, host in _hosts(specs):
        image = image_of(desk.cloud, host)
        if image is None:
            raise UsageError(
                f"{role}: there is no image under the SSM parameter {host.image_parameter} in {desk.cloud.region}",
                hint="set image_id or image_parameter in the specs file",
            )
        found[role] = image
    return found


def _hosts(specs: Specs) -> list[tuple[str, Host]]:
    return [("worker", specs.worker), *([("rdzv", specs.rdzv)] if specs.rdzv else [])]


def _order(desk: Desk, draft: _Draft, tagged: Mapping[str, str], images: Mapping[str, str]) -> Order:
    job, run = desk.options.job, tagged[RUN_TAG]
    description = Description(
        job=job,
        run=run,
        source=draft.shipped.source,
        sha256=draft.shipped.sha256,
        script=draft.shipped.script,
        argv=desk.script_args,
        launch=launch_flags(draft.specs, draft.sizes, run),
    )
    return Order(
        job=job,
        run=run,
        specs=draft.specs,
        sizes=draft.sizes,
        tags=tagged,
        code=draft.shipped.code,
        description=encode(description),
        images=images,
        user_data=_user_data(desk, draft, run),
    )


def _user_data(desk: Desk, draft: _Draft, run: str) -> dict[str, str]:
    found = {"worker": worker_user_data(_worker_host(desk, draft, run))}
    if draft.specs.rdzv is not None:
        found["rdzv"] = store_user_data(_store_host(desk, draft, run, draft.specs.rdzv))
    return found


def _endpoint(given: str | None) -> str | None:
    """Return where AWS is, if not at its own addresses.

    Raises:
        UsageError: It says more than user data may.
    """
    if given and "@" in given.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "AWS_ENDPOINT_URL has a user or a password in it, and goes into user data, which many may read",
            hint="set it to http://HOST or https://HOST",
        )
    return given or None


def _worker_host(desk: Desk, draft: _Draft, run: str) -> WorkerHost:
    worker, sizes, names = draft.specs.worker, draft.sizes, Names(desk.options.job)
    has_store = draft.specs.rdzv is not None
    return WorkerHost(
        job=names.job,
        run=run,
        region=draft.region,
        bucket=worker.s3_bucket,
        prefix=worker.s3_prefix,
        image=worker.docker_image,
        gpus=worker.accelerator == "gpu",
        worker_group=names.worker_group,
        store_group=names.store_group if has_store else None,
        log_group=names.log_group,
        token_parameter=names.token,
        size=sizes.wanted,
        efs_id=worker.efs_file_system_id,
        shm_gb=worker.shm_gb,
        endpoint=draft.endpoint,
    )


def _store_host(desk: Desk, draft: _Draft, run: str, store: Store) -> StoreHost:
    names = Names(desk.options.job)
    return StoreHost(
        job=names.job,
        run=run,
        region=draft.region,
        store_group=names.store_group,
        etcd_url=store.etcd_url,
        etcd_sha256=store.etcd_sha256,
        endpoint=draft.endpoint,
    )


def upload(desk: Desk) -> int:
    """Upload a script or directory; print where it is and its hash."""
    options = desk.options
    bucket, key = _destination(options.destination)
    if bucket is not None:
        place = Place(bucket, "")
    elif desk.specs is not None:
        place = Place(desk.specs.worker.s3_bucket, desk.specs.worker.s3_prefix)
    else:
        raise UsageError("petctl upload needs a destination s3://BUCKET/KEY, or --specs_file for the bucket in it")
    with tempfile.TemporaryDirectory(prefix="petctl-") as folder:
        shipped = ship_whole(options.source, place, folder)
        for line in shipped.notes:
            desk.say(line)
        assert shipped.code is not None, "what is here is uploaded"
        _check_ending(key, shipped.code)
        return _upload(desk, place.bucket, Code(key or shipped.code.key, shipped.code.file))


def _check_ending(key: str | None, code: Code) -> None:
    """Refuse a key by which nodes would take a script for an archive, or an archive for a script."""
    if key is None or is_archive(key) == is_archive(code.key):
        return
    wanted = "such as .tar.gz, for this is an archive" if is_archive(code.key) else "such as .py, for this is a script"
    raise UsageError(f"the destination's key is {quoted(key)}, expected one with an ending {wanted}")


def _upload(desk: Desk, bucket: str, code: Code) -> int:
    url, where = f"s3://{bucket}/{code.key}", {"Bucket": bucket, "Key": code.key}
    put = Call("s3", "put_object", {**where, "Body": code.file})
    if desk.options.dry_run:
        desk.show_plan(Plan("", "", (Step(Kind.CODE, url, put, None, Call("s3", "delete_object", where)),)))
        return 0
    desk.cloud.call(filled(put, ""))
    desk.answer(f"{url}\nsha256 {code.file.sha256}\n", {"url": url, "sha256": code.file.sha256})
    return 0


def _destination(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    wrong = f"the destination is {quoted(text)}, expected s3://BUCKET/KEY"
    try:
        source = source_of(text)
    except UsageError as problem:  # it speaks of a source
        endings = ", ".join((".py", *ARCHIVES))
        raise UsageError(wrong, hint=f"KEY is a file's name with an ending such as {endings}") from problem
    if not isinstance(source, Stored):
        raise UsageError(wrong)
    return source.bucket, source.key
