"""Problems of workers and cycles: lost, silent or resting, late or paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from relevo.core.known_services import LABELS
from relevo.core.phrases import Phrase
from relevo.core.sending_project import project_in_words
from relevo.operators.formats import in_numbers, in_words, timestamp
from relevo.operators.health.problem import SLACK_S, USUAL, Observed, Problem, Row
from relevo.runtime.cycle_facts import Backlog, CycleFacts
from relevo.runtime.disks import LOG
from relevo.runtime.timing import Cron

_RETIRED_S = 7 * 86_400.0  # what nobody ran for a week was taken out of service
_LATE_CRON = timedelta(hours=2)
_PAUSED_FOR_LONG_S = 86_400.0
_LOST_LATELY_S = 900.0
_STANDS_STILL_S = 15.0  # as in the alert RelevoWorkerSilent
_TICKED_LATELY_S = 900.0
_UNREACHABLE_LATELY = timedelta(minutes=1)  # a worker that has nothing to send does not try again
_FAILED_IN_A_ROW = 2
_UNKNOWN_INTERVAL_MS = 3_600_000  # of a cycle that nobody described since 0.3
MOST_SKEW_S = 60.0
"""Beyond this a machine's clock is wrong; push services bear some minutes."""
_START = Phrase("start `relevo run`, or schedule `relevo tick` with cron")


def worker_state(worker: Mapping[str, Any]) -> str:
    """Return a worker's state in a word: of one that is alive also that it rests, or that its heartbeat is late.

    One that was killed while it stopped is late, too.
    """
    state = str(worker["state"])
    if state in ("alive", "stopping") and worker.get("is_late"):
        return "late"
    return "rests" if state == "alive" and worker.get("rests_because") else state


def of_instance(seen: Observed) -> Iterator[Problem]:
    """Report that nothing may be sent from here: only the name differs in a running fleet, or this is a copy."""
    if seen.misnamed:
        yield Problem(
            "instance_differs",
            "RELEVO_INSTANCE is {here} here, and {home} for worker {worker}, which is running; "
            "nothing is sent from here until both are equal",
            here=seen.misnamed["here"] or Phrase("unset"),
            home=seen.misnamed["home"] or Phrase("unset"),
            worker=seen.misnamed["worker"],
        )
    elif seen.copied:
        yield Problem("database_copied", "{problem}", problem=seen.copied)


def _of_resting(worker: Row, seen: Observed) -> Problem:
    others = [each["worker_id"] for each in seen.workers if each["state"] == "alive" and not each.get("rests_because")]
    advice = Phrase("set its former RELEVO_INSTANCE, or run `relevo adopt` there if the database belongs there")
    if others:
        advice = Phrase("set its RELEVO_INSTANCE to that of worker {worker}", worker=others[0])
    return Problem(
        "worker_rests",
        "worker {worker} rests and sends nothing, because the database looks like a copy: {why}; {advice}, "
        "then restart it",
        worker=worker["worker_id"],
        why=worker["rests_because"],
        advice=advice,
    )


def of_workers(seen: Observed) -> Iterator[Problem]:
    """Name workers that rest, are silent or lost, hang, or cannot serve HTTP."""
    for worker in seen.workers:
        if worker["state"] == "alive" and worker.get("rests_because"):
            yield _of_resting(worker, seen)
        if worker["state"] == "silent" or _stands_still(worker, seen):
            yield Problem(
                "worker_silent",
                "worker {worker} has not been seen for {time}; "
                "if it hangs, end its process on {host}: its deliveries return to the queue",
                worker=worker["worker_id"],
                time=in_words(worker["silent_s"]),
                host=worker["hostname"],
            )
        elif _is_missing(worker, seen):
            yield Problem(
                "worker_lost",
                "worker {worker} has not been seen for {time}, and its deliveries are back in the queue; "
                "it was killed, or {host} is down or cannot reach the database: read its log",
                worker=worker["worker_id"],
                time=in_words(worker["silent_s"]),
                host=worker["hostname"],
            )
        for hung in worker["hung"] if worker["state"] in ("alive", "stopping") else ():
            where = Phrase(" (project {project})", project=hung["project"]) if hung["project"] else ""
            yield Problem(
                "call_hung",
                "worker {worker}: {what}{where} has not returned since {since} ({calls}); "
                "set a timeout in its code, and restart the worker",
                worker=worker["worker_id"],
                what=hung["what"],
                where=where,
                since=timestamp(datetime.fromisoformat(hung["since"])),
                calls=in_numbers(hung["calls"], "call given up", "calls given up"),
            )
        if worker["state"] == "alive" and (problem := (worker.get("http") or {}).get("problem")):
            yield Problem("http_not_served", "worker {worker}: {problem}", worker=worker["worker_id"], problem=problem)


def of_unreachable(seen: Observed) -> Iterator[Problem]:
    """Name the machines from which a push service cannot be reached while another worker may reach it."""
    at_work = [each for each in seen.workers if each["state"] == "alive" and "dispatch" in each["cycles"]]
    for worker in at_work:
        for entry in worker.get("unreachable") or ():
            tried_lately = datetime.fromisoformat(entry["retry_at"]) > seen.now - _UNREACHABLE_LATELY
            if entry["failures"] < _FAILED_IN_A_ROW or not tried_lately or not _others_reach(at_work, entry["service"]):
                continue
            yield Problem(
                "service_unreachable",
                "worker {worker} on {host} has not reached {service} since {since}: {why}; other workers send "
                "meanwhile; check the network of {host} (DNS, firewall, HTTPS_PROXY, certificates)",
                worker=worker["worker_id"],
                host=worker["hostname"],
                service=_service_in_words(entry["service"]),
                since=timestamp(datetime.fromisoformat(entry["since"])),
                why=entry["reason"].removesuffix("."),
            )


def _others_reach(at_work: Sequence[Row], service: str) -> bool:
    return any(service not in {each["service"] for each in worker.get("unreachable") or ()} for worker in at_work)


def _service_in_words(service: str) -> str:
    """Name a push service with one address, or the project that has an address of its own."""
    return LABELS.get(service) or Phrase("the push service of project {project}", project=project_in_words(service))


def of_clocks(seen: Observed) -> Iterator[Problem]:
    """Name the machines whose clock is far from the database's: credentials and signatures go by it."""
    alive = [each for each in seen.workers if each["state"] == "alive" and each.get("clock_ahead_s") is not None]
    for host, ahead_s in {each["hostname"]: each["clock_ahead_s"] for each in alive}.items():
        if abs(ahead_s) > MOST_SKEW_S:
            yield Problem(
                "clock_wrong",
                "the clock of {host} is {time} {direction} the database's; push services may refuse its credentials: "
                "correct the clock of {host} (NTP)",
                host=host,
                time=in_words(abs(ahead_s)),
                direction=Phrase("ahead of") if ahead_s > 0 else Phrase("behind"),
            )


def of_disks(seen: Observed) -> Iterator[Problem]:
    """Name the machines on which a worker cannot write, and where."""
    for worker in seen.workers:
        for entry in worker.get("unwritable") or () if worker["state"] == "alive" else ():
            yield Problem(
                "disk_full",
                "worker {worker} on {host} cannot write to {place}: {why}; pushes continue; free disk space there",
                worker=worker["worker_id"],
                host=worker["hostname"],
                place=Phrase("its log") if entry["place"] == LOG else entry["place"],
                why=entry["reason"],
            )


def of_credentials(seen: Observed) -> Iterator[Problem]:
    """Name credentials that a worker cannot use, each once."""
    alive = [worker for worker in seen.workers if worker["state"] == "alive"]
    for what in dict.fromkeys(each for worker in alive for each in worker.get("unusable") or ()):
        yield Problem(
            "credential_unusable",
            "{what}; Relevo keeps using the last valid credential; correct the entry, "
            "then check it with `relevo doctor`",
            what=what,
        )


def of_no_worker(seen: Observed) -> Iterator[Problem]:
    """Report that nothing runs cycles."""
    if not _nobody_works(seen):
        return
    last = min(_that_run(seen.workers), key=lambda each: float(each["silent_s"]))
    if last["state"] in ("stopped", "lost"):
        yield Problem("no_worker", "no worker is running; {advice}", advice=_START)
    else:
        yield Problem(
            "no_worker",
            "no worker is running: worker {worker}, the last one, has not been seen for {time}; {advice}",
            worker=last["worker_id"],
            time=in_words(last["silent_s"]),
            advice=_START,
        )


def _that_run(workers: Sequence[Row]) -> list[Row]:
    return [each for each in workers if each["role"] == "run" and each["cycles"]]


def _nobody_works(seen: Observed) -> bool:
    """Return whether workers ran cycles, and nobody does any more."""
    return bool(_that_run(seen.workers)) and not is_somebody_at_work(seen.workers)


def is_somebody_at_work(workers: Sequence[Row]) -> bool:
    """Return whether a worker runs cycles and is seen when it should be, or a tick came lately or after them all."""
    ran = _that_run(workers)
    if any(worker_state(each) not in ("stopped", "lost", "silent", "late") for each in ran):
        return True
    quiet_s = max(min((each["silent_s"] for each in ran), default=0.0), _TICKED_LATELY_S)
    ticks = [each for each in workers if each["role"] == "tick"]
    return any(each["silent_s"] <= max(quiet_s, USUAL * (each.get("ticks_every_s") or 0.0)) for each in ticks)


def _stands_still(worker: Row, seen: Observed) -> bool:
    """Return whether a worker is late beside others for longer than a pause explains, before its lease ends."""
    if worker_state(worker) != "late" or worker["role"] != "run" or worker["silent_s"] <= _STANDS_STILL_S:
        return False
    return not _nobody_works(seen) and not _is_replaced(worker, seen)


def _is_missing(worker: Row, seen: Observed) -> bool:
    """Return whether a worker was lost lately and no other was started on its host since then."""
    if worker["state"] != "lost" or worker["role"] != "run" or worker["silent_s"] > _LOST_LATELY_S:
        return False
    return not _is_replaced(worker, seen)


def _is_replaced(worker: Row, seen: Observed) -> bool:
    """Return whether another worker was started on the host of one that is not seen any more."""
    started = [each["started_at"] for each in _that_run(seen.workers) if each["hostname"] == worker["hostname"]]
    return bool(max(started, default=worker["started_at"]) > worker["last_seen_at"])


def of_cycles(seen: Observed) -> Iterator[Problem]:
    """Name cycles that failed, or made no round for longer than the way they are run explains."""
    seen_in_time = [worker for worker in seen.workers if worker_state(worker) in ("alive", "rests")]
    running = {name: worker for worker in seen_in_time for name in worker["cycles"]}
    if not any(row["cycle"] == "reaper" and row["quiet_s"] is not None for row in seen.cycles):
        yield Problem("no_reaper", "no reaper has ever run; {advice}", advice=_START)
    for row in seen.cycles:
        if row["paused_reason"] or row["quiet_s"] is None:
            continue
        if row["quiet_s"] > _RETIRED_S and row["cycle"] != "reaper":  # which every fleet needs
            continue
        name = _name_of(row)
        cron = _cron_of(row)
        if row["failures"] and (row["failures"] > 1 or cron is not None):
            yield Problem(
                "cycle_failed",
                "{cycle} has failed{times}: {why}; `relevo runs --cycle {name}` shows the runs",
                cycle=name,
                times=Phrase(" {n} times in a row", n=row["failures"]) if row["failures"] > 1 else "",
                why=(row["error_message"] or Phrase("no reason was given")).removesuffix("."),
                name=row["cycle"],
            )
        elif cron is not None:
            yield from _missed(name, row, cron, seen.now)
        elif row["quiet_s"] > (limit_s := _limit_s(row)) and not _nobody_works(seen):
            worker = running.get(name)
            advice = _START
            if worker:
                advice = Phrase("worker {worker} is alive and should run it: read its log", worker=worker["worker_id"])
            yield Problem(
                "cycle_quiet",
                "{cycle} has made no round for {time} (usual: within {usual}); {advice}",
                cycle=name,
                time=in_words(row["quiet_s"]),
                usual=in_words(limit_s),
                advice=advice,
            )


def _name_of(row: Row) -> str:
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _missed(name: str, row: Row, cron: Cron, now: datetime) -> Iterator[Problem]:
    slot = cron.next_slot(row["last_round_at"])
    if slot + _LATE_CRON < now:
        yield Problem(
            "cycle_missed_slot",
            "{cycle} missed its slot of {slot}; `relevo run-cycle {cycle}` runs it now",
            cycle=name,
            slot=f"{slot:%Y-%m-%d %H:%M}Z",
        )


def _cron_of(row: Row) -> Cron | None:
    """Return by which cron expression a cycle runs, as the worker or tick said that started last."""
    return Cron(row["cron"], row["timezone"]) if row.get("cron") else None


def _limit_s(row: Row) -> float:
    """Return how long a cycle may be quiet: by its interval, or by how often it really comes round."""
    interval_s = (row.get("every_ms") or _UNKNOWN_INTERVAL_MS) / 1000
    return max(3 * interval_s + SLACK_S, USUAL * (row["round_gap_s"] or 0.0))


def next_round(row: Row, now: datetime) -> datetime | None:
    """Return when a cycle comes round again at the latest, without a call before; None if it is unknown."""
    if (cron := _cron_of(row)) is not None:
        return cron.next_slot(now)
    if row["every_ms"] is None or row["last_round_at"] is None:
        return None
    due: datetime = row["last_round_at"] + timedelta(milliseconds=row["every_ms"])
    return due


def of_pauses(seen: Observed, facts: Callable[[], Mapping[str, CycleFacts]]) -> Iterator[Problem]:
    """Name the pause switches for which something waits: one for a whole cycle once, not for each source again."""
    backlog = Backlog(seen.events_waiting, sum(row["due"] for row in seen.due), seen.receipts_due)
    paused = {
        (row["cycle"], row["paused_source"]): {**row, "source": row["paused_source"]}
        for row in seen.cycles
        if row["paused_reason"]
    }
    for row in paused.values():
        name = _name_of(row)
        paused_s = (seen.now - row["paused_at"]).total_seconds()
        said = facts().get(row["cycle"])
        what = said.waiting(backlog) if said else ""
        if not what and paused_s > _PAUSED_FOR_LONG_S:
            what = Phrase("it does not run")
        if what:
            yield Problem(
                "cycle_paused",
                "{cycle} has been paused for {time} ({reason}), and {what}; `relevo resume {cycle}` switches it on",
                cycle=name,
                time=in_words(paused_s),
                reason=row["paused_reason"].removesuffix("."),
                what=what,
            )
