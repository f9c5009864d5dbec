"""`vla data check` and the check before training: every kind of damage is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vla_dit4dit.data.dataset import build_dataset
from vla_train.cli import main
from vla_train.data.cache import cache_folder
from vla_train.data.check import Scope, check_dataset
from vla_train.data.check.findings import Report, describe
from vla_train.data.config import DatasetConfig
from vla_train.data.errors import DataError

FIRST_TABLE = "data/chunk-000/episode_000000.parquet"
TABLE = "data/chunk-000/episode_000001.parquet"
VIDEO = "videos/chunk-000/observation.images.image/episode_000001.mp4"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_info(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "meta" / "info.json", change)


def edit_modality(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "meta" / "modality.json", change)


def edit_column(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = pq.read_table(folder / TABLE)
        values = np.array(
            table[name].to_pylist(), dtype=table[name].type.to_pandas_dtype() if name != "action" else "f"
        )
        column = pa.array(change(values).tolist(), type=table[name].type)
        pq.write_table(table.set_column(table.column_names.index(name), name, column), folder / TABLE)

    return edit


def edit_tables(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        for path in (folder / FIRST_TABLE, folder / TABLE):
            pq.write_table(change(pq.read_table(path)), path)

    return edit


def put(place: tuple[Any, ...], value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[place] = value
        return values

    return change


def replace(name: str, content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return edit


def record(count: int, rate: int, codec: str = "libx264") -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        with av.open(str(folder / VIDEO), "w") as container:
            stream = container.add_stream(codec, rate=rate)
            stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
            for i in range(count):
                frame = np.full((64, 64, 3), i, dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())

    return edit


DAMAGE: dict[str, tuple[Callable[[Path], None], str, str, str, str]] = {
    # name: (damage, severity, kind, file, what)
    "no video": (lambda f: (f / VIDEO).unlink(), "error", "missing-file", VIDEO, "1 of 2 listed"),
    "no table": (lambda f: (f / TABLE).unlink(), "error", "missing-file", TABLE, "1 of 2 listed"),
    "table is garbage": (replace(TABLE, b"nothing"), "error", "damaged-table", TABLE, "Parquet"),
    "table is a pointer": (replace(TABLE, LFS), "error", "damaged-table", TABLE, "git lfs pull"),
    "video is garbage": (replace(VIDEO, b"nothing"), "error", "damaged-video", VIDEO, "7 bytes"),
    "video is empty": (replace(VIDEO, b""), "error", "damaged-video", VIDEO, "0 bytes"),
    "video is a pointer": (replace(VIDEO, LFS), "error", "damaged-video", VIDEO, "Git LFS pointer"),
    "video is cut off": (replace(VIDEO, lambda b: b[: len(b) // 2]), "error", "damaged-video", VIDEO, "opened"),
    "unknown codec": (replace(VIDEO, lambda b: b.replace(b"avc1", b"zzzz")), "error", "codec", VIDEO, "no decoder"),
    "short video": (record(5, 10), "error", "short-video", VIDEO, "5 frames to 0.40 s"),
    "video of another rate": (record(20, 20), "error", "video-rate", VIDEO, "20 frames and 10 rows per second"),
    "video with twice the frames": (record(40, 20), "warning", "video-rate", VIDEO, "nearest frame"),
    "two frames missing": (record(18, 10), "warning", "frame-count", VIDEO, "18 frames"),
    "rows missing": (
        lambda f: pq.write_table(pq.read_table(f / TABLE).slice(0, 15), f / TABLE), "error", "rows", TABLE, "15 rows"),
    "NaN": (edit_column("action", put((3, 2), np.nan)), "error", "not-finite", TABLE, "1 of 20 rows, first in row 3"),
    "infinite": (edit_column("action", put((0, 0), np.inf)), "error", "not-finite", TABLE, "row 0"),
    "time stands still": (edit_column("timestamp", put((7,), 0.6)), "error", "timestamps", TABLE, "row 7"),
    "unknown task": (edit_column("task_index", lambda v: v + 7), "error", "unknown-task", TABLE, "task 8"),
    "another episode": (edit_column("episode_index", lambda v: v + 7), "warning", "episode-index", TABLE, "episode 8"),
    "no column": (
        lambda f: pq.write_table(pq.read_table(f / TABLE).drop_columns(["action"]), f / TABLE),
        "error", "no-column", TABLE, "'action'"),
    "narrow column": (
        lambda f: pq.write_table((t := pq.read_table(f / TABLE)).set_column(
            t.column_names.index("action"), "action", pa.array([[0.0]] * 20)), f / TABLE),
        "error", "width", TABLE, "1 values"),
    "fps": (edit_info(lambda i: i.update(fps=20)), "warning", "fps", TABLE, "10 per second"),
    "no fps": (edit_info(lambda i: i.pop("fps")), "warning", "no-fps", "meta/info.json", "None"),
    "totals": (edit_info(lambda i: i.update(total_frames=9)), "warning", "totals", "meta/info.json", "adds up to 40"),
    "listed camera without files": (
        edit_info(lambda i: i["features"].update({"observation.images.depth": {"dtype": "video"}})),
        "note", "feature-without-files", "meta/info.json", "observation.images.depth"),
    "no chunks": (
        edit_info(lambda i: i.update(total_chunks=0)), "note", "totals-unset", "meta/info.json", "total_chunks is 0"),
    "folder named otherwise": (
        lambda f: (f / "videos").rename(f / "video"), "note", "paths", "meta/info.json", "videos are in video/"),
    "another codec": (
        edit_info(lambda i: i["features"]["observation.images.image"].update(info={"video.codec": "av1"})),
        "warning", "codec-name", "meta/info.json", "said to be av1, its videos are h264"),
    "another size": (
        edit_info(lambda i: i["features"]["observation.images.image"].update(shape=[800, 1280, 3])),
        "warning", "video-size", "meta/info.json", "videos are 64x64"),
    "vectors as text": (
        edit_tables(lambda t: t.set_column(
            t.column_names.index("action"), "action", pa.array([json.dumps(row) for row in t["action"].to_pylist()]))),
        "note", "json-text", FIRST_TABLE, "'action'"),
    "no task index": (
        edit_tables(lambda t: t.drop_columns(["task_index"])), "note", "no-task-index", FIRST_TABLE, "'task_index'"),
    "no timestamps": (
        edit_tables(lambda t: t.drop_columns(["timestamp"])), "note", "no-timestamp", FIRST_TABLE, "10 steps"),
    "images in tables": (
        edit_info(lambda i: i["features"].update({"observation.images.eye": {"dtype": "image"}})),
        "warning", "images-in-tables", "meta/info.json", "observation.images.eye"),
    "template without chunk": (
        edit_info(lambda i: i.update(data_path="data/chunk-{episode_index:03d}/episode_{episode_index:06d}.parquet")),
        "note", "paths", "meta/info.json", "found by name"),
    "modality range": (
        edit_modality(lambda m: m["action"]["gripper"].update(end=9)),
        "error", "modality", "meta/modality.json", "action.gripper is action[6:9]"),
    "modality column": (
        edit_modality(lambda m: m["state"]["x"].update(original_key="state.arm")),
        "error", "modality", "meta/modality.json", "'state.arm'"),
    "modality camera": (
        edit_modality(lambda m: m["video"].update(top={"original_key": "observation.images.top"})),
        "error", "camera-without-files", "meta/modality.json", "'top'"),
    "modality annotation": (
        edit_modality(lambda m: m["annotation"].update(check={})),
        "warning", "annotation", "meta/modality.json", "'annotation.check'"),
    "modality overlap": (
        edit_modality(lambda m: m["action"]["x"].update(end=2)),
        "warning", "overlap", "meta/modality.json", "action[1]"),
    "modality is not JSON": (replace("meta/modality.json", b"{"), "error", "unreadable-metadata", "meta", "modality"),
    "episodes are damaged": (replace("meta/episodes.jsonl", b"{}"), "error", "unreadable-metadata", "meta", "episode"),
    "episode listed twice": (
        replace("meta/episodes.jsonl", lambda b: b + b.splitlines()[0] + b"\n"),
        "error", "listed-twice", "meta/episodes.jsonl", "episode 0 is listed 2 times"),
    "unlisted episode": (
        replace("meta/episodes.jsonl", lambda b: b.splitlines()[0]),
        "warning", "unlisted-episode", "meta/episodes.jsonl", "1 episodes on disk"),
    "empty instruction": (
        replace("meta/tasks.jsonl", b'{"task_index": 0, "task": ""}\n{"task_index": 1, "task": "open"}'),
        "warning", "empty-instruction", "meta", "task 0"),
    "foreign statistics": (
        lambda f: (f / "meta" / "stats.json").write_text(json.dumps({"action": {"min": [-9.0] * 7, "max": [9.0] * 7}})),
        "warning", "statistics", "meta/stats.json", "min of 'action'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name, copy_set):
    damage, severity, kind, file, what = DAMAGE[name]
    folder = copy_set()
    before = {finding.kind for finding in check_dataset(folder).findings}
    assert before == {"constant"}
    damage(folder)
    report = check_dataset(folder)
    found = [finding for finding in report.findings if finding.kind == kind]
    assert found, report.findings
    assert all(finding.severity == severity for finding in found)
    assert any(finding.file == file and what in finding.what for finding in found), found
    assert severity == "note" or all(finding.remedy for finding in found)
    assert bool(report.errors) == (severity == "error"), report.errors


def test_everything_is_reported_at_once(copy_set):
    folder = copy_set()
    for name in ("video is garbage", "NaN", "modality annotation", "fps"):
        DAMAGE[name][0](folder)
    shutil.rmtree(folder / "videos" / "chunk-000" / "observation.images.wrist_image")
    report = check_dataset(folder)
    kinds = {"damaged-video", "not-finite", "annotation", "fps", "camera-without-files"}
    assert kinds <= {finding.kind for finding in report.findings}
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert Report.from_json(report.as_json()) == report


def test_a_scope_leaves_out_what_a_robot_does_not_read(copy_set):
    folder = copy_set()
    DAMAGE["video is garbage"][0](folder)
    DAMAGE["NaN"][0](folder)
    scope = Scope(state=("x",), action=(), cameras=("wrist_image",))
    report = check_dataset(folder, scope=scope)
    assert not report.errors
    assert [finding.kind for finding in report.findings if finding.severity == "warning"] == ["not-finite-unused"]
    (folder / VIDEO).unlink()
    assert check_dataset(folder, scope=Scope(skip_missing=True)).count("note") == 1


def test_only_the_deep_check_decodes(copy_set, monkeypatch):
    folder = copy_set()

    def spoil(content: bytes) -> bytes:
        at = content.index(b"mdat") + 1200
        return content[:at] + bytes(900) + content[at + 900 :]

    replace(VIDEO, spoil)(folder)
    assert not check_dataset(folder).errors
    (finding,) = check_dataset(folder, deep=True).errors
    assert (finding.kind, finding.file) == ("undecodable", VIDEO)
    steps: list[int] = []
    check_dataset(folder, deep=True, progress=lambda total: lambda: steps.append(total))
    assert steps == [8] * 8


def test_a_camera_that_stood_still(copy_set):
    folder = copy_set()
    with av.open(str(folder / VIDEO), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for _ in range(20):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), 9, np.uint8), format="rgb24")))
        container.mux(stream.encode())
    assert [f.kind for f in check_dataset(folder, deep=True).findings if f.file == VIDEO] == ["still-video"]


def test_command(copy_set, capsys):
    folder = copy_set()
    assert main(["data", "check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "LeRobot v2.1, 2 episodes, 40 frames, 10 fps" in out
    assert "primary_image 64x64 h264" in out
    DAMAGE["NaN"][0](folder)
    assert main(["data", "check", str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["errors"], report["findings"][0]["kind"], report["findings"][0]["file"]) == (1, "not-finite", TABLE)
    assert main(["data", "check", str(folder / "nowhere")]) == 2
    assert "no folder" in capsys.readouterr().err
    assert main(["data", "check", str(folder / "meta")]) == 2
    assert "is not a LeRobot dataset" in capsys.readouterr().err


def test_many_findings_of_a_kind_are_shortened():
    report = Report("set")
    report.findings = check_like(7)
    lines = describe(report.findings)
    assert len(lines) == 5
    assert lines[3].strip() == "... and 4 more like this"
    assert lines[4].strip() == "-> do"


def check_like(count: int):
    from vla_train.data.check import Finding

    return [Finding("error", "kind", f"{i}.mp4", "is bad", "do") for i in range(count)]


@pytest.fixture
def train(config, pyav, tmp_path):
    def build(**changes: Any):
        entries = [DatasetConfig("copy", 1.0, "libero_franka")]
        return build_dataset(config(root=str(tmp_path), datasets=entries, check="quick", **changes), pyav)

    return build


def test_training_stops_on_errors_and_says_all_of_them(copy_set, train, monkeypatch):
    folder = copy_set()
    train()
    DAMAGE["video is garbage"][0](folder)
    DAMAGE["NaN"][0](folder)
    with pytest.raises(DataError, match=r"(?s)2 errors in the data.*NaN.*episode_000001\.mp4.*data\.check=off"):
        train()
    monkeypatch.setenv("RANK", "1")  # one rank looks; the others need not
    train()
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(DataError, match="2 errors"):
        train()


def test_training_checks_once_per_state_of_the_files(copy_set, train, monkeypatch):
    folder = copy_set()
    train()
    assert len(list((cache_folder("checks")).glob("copy-*.json"))) == 1
    with monkeypatch.context() as patch:
        patch.setattr("vla_train.data.check.gate.check_dataset", lambda *a, **k: pytest.fail("not cached"))
        train()
    DAMAGE["NaN"][0](folder)
    with pytest.raises(DataError, match="1 error in the data"):
        train()


def test_what_a_run_does_not_read_does_not_stop_it(copy_set, train):
    folder = copy_set()
    DAMAGE["modality camera"][0](folder)
    (folder / VIDEO).unlink()
    with pytest.raises(DataError, match="1 error in the data"):
        train()
    assert len(train(skip_missing_episodes=True)) == 20
