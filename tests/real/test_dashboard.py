"""The web page in a real browser: what a person sees of a run, what strangers' text does there, and what an update costs."""

from __future__ import annotations

import glob
import itertools
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pictures
import pytest
from crew import Crew
from crew_jobs import FAILS
from dashboard_stage import Cast, Stage
from hanging import SLOW_AND_STUCK, SLOW_AND_STUCK_FLAGS
from served import dashboard
from waiting import wait_until
from windows import shown, stop_the_run, texts, unlock

from planaria.contract.progress import Record
from planaria.dashboard.rules import POLICY
from planaria.kube.portrait import Sizes, Told, portrait
from planaria.kube.seen import JobSeen, PodSeen

if TYPE_CHECKING:
    from browser import Browser
    from harness import Room

UPDATES = 5
MOST_MS = 100  # for an update with 1,000 ranks


def test_a_run_is_seen_with_its_world_its_recoveries_its_ranks_and_its_log(window: Browser) -> None:
    moments = itertools.count(180)
    with shown(window, Cast(live=lambda: pictures.live(next(moments)))):
        window.wait_for_text("#verdict-line", "6 workers on 3 nodes at work")
        window.wait_for_text("#link", "live")
        assert window.text("#verdict-more") == "Slower than the others: rank 4 on node-c (1.62\u00d7)"
        assert window.run("return document.querySelector('#world svg path.line').getAttribute('d').length") > 40
        parts = texts(window, "#recoveries .parts")
        assert parts[-1] == (
            "detect 0.6 ms · decide 0.4 ms · stop 2.8 ms · rendezvous 9.1 ms · start 11.9 ms · ready 212 ms"
        )
        assert texts(window, "#recoveries .total") == ["334 ms", "455 ms", "237 ms"]
        assert len(texts(window, "#table .rank")) == 6
        assert "1.62\u00d7 slower" in texts(window, "#table .rank")[0], "who is slow comes first"
        window.wait_for_text("#log", "rank 4\nstep 0")
        window.click("#table .rank[data-rank='1']")
        window.wait_for_text("#log", "rank 1\nstep 0")
        figures = window.text("#tiles")
        window.wait("document.querySelector('#tiles').textContent !== arguments[0]", figures)


def test_evidence_that_cannot_be_saved_is_told_so(window: Browser) -> None:
    cast = Cast(hanging=pictures.hanging)
    cast.evidence = lambda *_: "the disk is full <b>"  # type: ignore[assignment, method-assign]
    with shown(window, cast, "sesame"):
        window.wait_for_text("#link", "live")
        unlock(window)
        window.click("#evidence a")
        window.wait_for_text("#ask-title", "The file was not saved")
        assert window.text("#ask-text") == "the disk is full <b>"
        window.complaints()  # the browser notes the refusal


def test_a_run_whose_agents_do_not_answer_at_the_moment_has_not_ended(window: Browser) -> None:
    def away() -> dict[str, Any]:
        return {**pictures.live(run_id="away"), "state": "away"}

    with shown(window, Cast(away=away)):
        window.wait_for_text("#verdict-line", "No agent of this run answers at the moment")
        window.wait_for_text("#link", "live")


def test_a_failure_is_told_in_plain_words_with_its_last_lines(window: Browser) -> None:
    with shown(window, Cast(failed=pictures.failed)):
        window.wait_for_text("#verdict-line", "Rank 2 on node-b failed: ValueError: loss is nan at step 2030")
        assert "check(loss, step)" in window.text("#verdict-lines")
        assert window.text("#verdict-more").startswith("Exit status 1 at train.py:88, after 1 min 0 s of round 3.")
        window.wait_for_text("#link", "ended")
        links = window.run("return [...document.querySelectorAll('#evidence a')].map((one) => one.href)")
        assert links[0].endswith("/api/run/vision-finetune/evidence/node-b-1a2b/failure-rank-2/stacks.txt")


def test_a_hang_names_its_rank_and_leads_to_its_evidence(window: Browser) -> None:
    with shown(window, Cast(hanging=pictures.hanging)):
        window.wait_for_text("#verdict-line", "Rank 2 on node-b is behind: no step for 41.0 s, usually one takes 0.1 s")
        assert "evidence in" not in window.text("#verdict-line")
        assert "--hang-policy=report" in window.text("#verdict-more")
        assert texts(window, "#evidence a") == ["rank-2.stacks.txt", "host.txt"]
        assert "behind" in texts(window, "#table .rank")[0]


def test_a_hang_without_evidence_here_promises_none(window: Browser) -> None:
    """As of an operator, which has none; the sentence says where an agent has put it."""
    with shown(window, Cast(hanging=lambda: {**pictures.hanging(), "evidence": []})):
        window.wait_for_text("#verdict-line", "evidence in /runs/hang-0001")
        assert "--hang-policy=report" in window.text("#verdict-more")
        assert "Evidence" not in window.text("#verdict-more")


def test_the_headline_of_a_hang_goes_when_the_hang_is_over(window: Browser) -> None:
    cast = Cast(hanging=pictures.hanging)
    with shown(window, cast):
        window.wait_for_text("#verdict-kicker", "hangs")
        cast.by_id["speech-eval"] = lambda: pictures.live(run_id="speech-eval")
        window.wait_for_text("#verdict-line", "6 workers on 3 nodes at work")


def test_a_run_whose_agents_were_killed_is_not_at_work(window: Browser) -> None:
    with shown(window, Cast(killed=pictures.killed)):
        window.wait_for_text("#verdict-line", "No agent of this run is left")
        assert "No end was written" in window.text("#verdict-more")
        window.wait_for_text("#link", "ended")


def test_a_node_that_left_has_no_workers_and_is_not_the_end_of_the_run(window: Browser) -> None:
    with shown(window, Cast(drained=pictures.drained)):
        window.wait_for_text("#verdict-line", "4 workers on 2 nodes at work")
        assert "4on 2 nodes" in window.text("#tiles")
        assert [row[:1] for row in texts(window, "#table .rank")] == ["0", "1", "2", "3"]
        assert texts(window, "#nodes .what") == [
            "running · ranks 0\u20131",
            "running · ranks 2\u20133",
            "left (signal)",
        ]
        window.wait_for_text("#link", "live")


def test_a_job_of_an_operator_is_seen_with_its_pods_and_what_keeps_them(window: Browser) -> None:
    pods = [
        PodSeen("resnet-worker-0", "p0", "Worker", 0, "Running", node="gpu-1", is_ready=True, is_running=True),
        PodSeen("resnet-worker-1", "p1", "Worker", 1, "Pending", unschedulable="0/3 nodes have a free GPU"),
    ]
    job = JobSeen("resnet", "team", "u1", 1, False, {"backoffLimit": 6}, {"state": "BelowMin", "restarts": 1})
    pushed = Record("planaria", 3, 1, 1, 120, None, 41.5)
    with shown(window, Cast(job=lambda: portrait(job, pods, Told(pushed, None, Sizes(((pictures.START_MS, 1),))), 1))):
        window.wait_for_text("#verdict-line", "resnet-worker-1: 0/3 nodes have a free GPU")
        assert "120as the agents push it" in window.text("#tiles")
        assert "resnet-worker-0 on gpu-1" in window.text("#nodes")
        assert "the operator does not speak with agents" in window.text("#gaps")


def test_text_of_strangers_stays_text(window: Browser) -> None:
    cast = Cast(hostile=pictures.hostile)
    cast.log = pictures.MARKUP + "\n"
    with shown(window, cast):
        window.wait_for_text("#verdict-line", "<script>document.title='owned'</script>")
        window.wait_for_text("#log", "<script>")
        assert "owned'" in window.text("#events")
        assert "red" in window.text("#log")
        assert not window.run("return /[\\u0000-\\u0008\\u000b-\\u001f\\u202e]/.test(document.body.textContent)")
        assert window.run("return document.querySelectorAll('main script, main img').length") == 0
        assert window.run("return document.title").startswith("<script>"), "the title is the run's name, as text"
        head = window.run("return fetch('/').then((one) => one.headers.get('Content-Security-Policy'))")
        assert head == POLICY


def test_markup_in_the_page_would_not_run_either(window: Browser) -> None:
    """The second wall: what slipped past the first would be refused by the browser."""
    with shown(window, Cast(live=pictures.live)):
        window.wait_for_text("#link", "live")
        refused = window.run("try { document.body.innerHTML = '<b>x</b>' } catch (problem) { return problem.name }")
        assert refused == "TypeError"
        script = "const one = document.createElement('script'); one.text = \"document.title='owned'\"; "
        refused = window.run(f"try {{ {script} document.body.append(one) }} catch (problem) {{ return problem.name }}")
        assert window.run("return document.title") != "owned"
        assert any("Content Security Policy" in line or "Trusted" in line for line in window.complaints())


def test_without_a_token_the_page_only_reads(window: Browser) -> None:
    cast = Cast(live=pictures.live)
    with shown(window, cast):
        window.wait_for_text("#link", "live")
        assert not window.is_shown("#unlock")
        assert not window.is_shown("#stop")
        assert texts(window, "#nodes button") == []
        path = "/api/run/llm-7b-pretrain/stop"
        ask = "return fetch(arguments[0], {method: 'POST', headers: {Authorization: 'Bearer x'}}).then((one) => one.status)"
        assert window.run(ask, path) == 403
        assert cast.orders == []
        window.complaints()  # the browser notes the refusal


def test_with_the_token_a_node_can_be_drained_and_a_run_stopped_after_a_question(window: Browser) -> None:
    cast = Cast(live=pictures.live)
    with shown(window, cast, "sesame"):
        window.wait_for_text("#link", "live")
        assert not window.is_shown("#stop")
        window.click("#unlock")
        window.type("#ask-token", "wrong\ue007")
        window.wait_for_text("#ask-problem", "that is not the token of this dashboard")
        assert not window.is_shown("#stop")
        window.complaints()  # the browser notes the refusal
        window.click("#ask button[value='no']")
        unlock(window)
        assert window.run("return document.querySelector('#ask-token').value") == ""
        window.click("#stop")
        window.click("#ask button[value='no']")
        assert cast.orders == []
        window.click("#nodes li:nth-child(2) button")
        window.wait_for_text("#ask-title", "Drain node-b?")
        window.click("#ask-yes")
        window.wait_for_text("#ask-text", "run llm-7b-pretrain was told to drain")
        window.click("#ask-yes")
        stop_the_run(window)
        assert cast.orders == [("llm-7b-pretrain", "drain", "node-b-1a2b"), ("llm-7b-pretrain", "stop", "")]


def test_from_another_machine_the_page_wants_the_token_before_it_shows_anything(window: Browser) -> None:
    with Stage(Cast(live=pictures.live), "sesame", is_far=True) as stage:
        window.go(stage.url)
        window.wait_for_text("#link", "the token of the run is wanted")
        assert window.text("#verdict-line") == "One moment"
        window.click("#unlock")
        window.type("#ask-token", "wrong\ue007")
        window.wait_for_text("#ask-problem", "that is not the token of this dashboard")
        window.type("#ask-token", "sesame\ue007")
        window.wait_for_text("#verdict-line", "6 workers on 3 nodes at work")
        window.wait_for_text("#unlock", "Lock")
        window.go("about:blank")
    window.complaints()  # the browser notes each refusal


def test_a_thousand_ranks_are_drawn_again_within_a_blink(window: Browser, capsys: pytest.CaptureFixture[str]) -> None:
    """CPU time of the page's main thread counts, with layout and all: other tests may have the machine meanwhile."""
    moments = itertools.count(60)
    drawn = "performance.getEntriesByName('update').length"
    with shown(window, Cast(thousand=lambda: pictures.thousand(next(moments)))):
        window.wait(f"{drawn} > 1")
        before_s, count = window.busy_s(), window.run(f"return {drawn}")
        window.wait(f"{drawn} >= arguments[0]", count + UPDATES)
        spent_s, count = window.busy_s() - before_s, window.run(f"return {drawn}") - count
        took = window.run("return performance.getEntriesByName('update').map((one) => one.duration)")
        rows = len(texts(window, "#table .rank"))
        window.run("document.querySelector('#table').scrollTop = 900 * 32")
        window.wait("[...document.querySelectorAll('#table .rank')].some((one) => one.dataset.rank === '900')")
    update_ms = spent_s * 1000 / count
    with capsys.disabled():
        print(
            f"\n1,000 ranks: {update_ms:.1f} ms of CPU an update; drawn in {sorted(took)[len(took) // 2]:.1f} ms",
            end=" ",
        )
    assert update_ms < MOST_MS
    assert rows < 40, "rows exist where somebody looks, and nowhere else"


def test_the_cause_of_a_failed_run_of_three_nodes_is_found_and_a_killed_dashboard_is_noticed(
    window: Browser, room: Room
) -> None:
    runs = f"--run-dir={room.path('runs')}"
    crew = Crew(room, "--max-restarts=1", runs, nodes="3", job=FAILS, run_id="three-nodes")
    crew.add_all("a", "b", "c")
    assert [crew.nodes[name].wait().status for name in "abc"] == [1, 1, 1], crew.story()
    with dashboard(runs, TMPDIR=room.tmp) as (server, url):
        window.go(f"{url}#three-nodes")
        cause = f"Rank 1 on {os.uname().nodename} failed: ValueError: the cause"
        window.wait_for_text("#verdict-line", cause)
        assert 'raise ValueError("the cause")' in window.text("#verdict-lines")
        assert "rank 2 failed" in window.text("#recoveries")
        assert len(texts(window, "#nodes .what")) == 3
        server.kill()
        server.wait()
        window.wait_for_text("#link", "Connection lost at ")
        assert window.text("#verdict-line") == cause, "what was known stays"
        window.go("about:blank")
    window.complaints()  # the browser notes each refused connection


def test_a_slow_rank_and_one_that_hangs_are_seen_and_its_evidence_is_saved(
    window: Browser, room: Room, tmp_path: Path
) -> None:
    room.make_gate("begin")
    flags = [*SLOW_AND_STUCK_FLAGS, "--rdzv-backend=c10d", "--rdzv-id=hangs", f"--run-dir={room.path('runs')}"]
    launcher = room.start(flags, SLOW_AND_STUCK)
    room.hear_many([f"up {rank}" for rank in range(3)])
    with dashboard(TMPDIR=room.tmp) as (_, url):
        window.go(f"{url}#hangs")
        room.open_gate("begin", 3)
        window.wait_for_text("#verdict-more", f"Slower than the others: rank 2 on {os.uname().nodename} (")
        assert "slower" in texts(window, "#table .rank")[0]
        room.write("hang", "")
        window.wait_for_text("#verdict-line", f" on {os.uname().nodename}) hangs in phase step after step ")
        assert window.text("#verdict-line").startswith("Rank 1 (pid ")
        assert " in stuck" in window.text("#verdict-line")
        assert "behind" in texts(window, "#table .rank")[0]
        window.wait_for_text("#evidence", "host.txt")  # which is written last
        window.keep_downloads(str(tmp_path))
        window.click("#evidence a[href$='/rank1.stack.txt']")
        (kept,) = glob.glob(f"{room.path('runs')}/hangs/*/evidence/*/rank1.stack.txt")
        saved = tmp_path / "rank1.stack.txt"
        wait_until(lambda: saved.exists() and saved.read_text() == Path(kept).read_text(), "a file that is saved")
        assert " in stuck" in saved.read_text()
        launcher.signal(signal.SIGTERM)
        launcher.wait()
        window.go("about:blank")
    window.complaints()  # the last requests may have found nobody


STORY = """
print(f"rank {RANK} in life {LIFE}", flush=True)
tell(f"up {RANK} {LIFE}")
if RANK == 1 and LIFE == 0:
    wait_at("die")
    raise ValueError("a planted failure")
wait_forever()
"""


def test_a_job_that_runs_is_seen_through_its_socket_recovers_and_is_stopped(window: Browser, room: Room) -> None:
    room.make_gate("die")
    flags = [
        "--nproc-per-node=2",
        "--max-restarts=1",
        "--tee=3",
        "--rdzv-id=in-the-page",
        f"--run-dir={room.path('runs')}",
    ]
    launcher = room.start(flags, STORY)
    room.hear_many(["up 0 0", "up 1 0"])
    with dashboard(TMPDIR=room.tmp, PLANARIA_TOKEN="sesame") as (server, url):
        window.go(f"{url}#in-the-page")
        window.wait_for_text("#verdict-line", "2 workers on 1 node at work")
        window.wait_for_text("#log", "rank 0 in life 0")
        room.open_gate("die")
        room.hear_many(["up 0 1", "up 1 1"])
        window.wait_for_text("#recoveries", "ValueError: a planted failure")
        assert "detect" in window.text("#recoveries .parts")
        window.wait_for_text("#log", "rank 0 in life 1")
        unlock(window)
        stop_the_run(window)
        assert launcher.wait().status == 143
        window.wait_for_text("#verdict-line", "The run was stopped by its owner")
        window.wait_for_text("#link", "ended")
        server.terminate()
        assert server.wait() == 0
        window.go("about:blank")
    window.complaints()  # the last requests may have found nobody
