"""`vla data show` and `vla data stats`."""

from __future__ import annotations

import json

import matplotlib.image
import numpy as np
import pyarrow.parquet as pq
import pytest

from vla_train.cli import main
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.sheet import contact_sheet, find_episode
from vla_train.data.statistics import column_statistics
from vla_train.data.video import read_clip


def test_sheet_shows_every_camera_and_part(copy_set, pyav):
    dataset = LeRobotDataset(copy_set("first"))
    episode = find_episode(dataset, 1)
    figure = contact_sheet(dataset, episode, pyav, frames=5)
    pictures = [axes for axes in figure.axes if axes.images]
    assert len(pictures) == 2 * 5
    clip = dataset.files.video(1, "observation.images.image")
    np.testing.assert_array_equal(pictures[2].images[0].get_array(), read_clip(clip, [1.0], pyav)[0])
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes if not axes.images}
    expected = {f"state: {name}" for name in dataset.modality.state}
    expected |= {f"action: {name}" for name in dataset.modality.action}
    assert {title.removesuffix("  (constant)") for title in panels} == expected
    curve = panels["action: x"].lines[-1]
    np.testing.assert_array_equal(curve.get_ydata(), dataset.table(episode)["action"][:, 0])
    np.testing.assert_allclose(curve.get_xdata(), np.arange(20) / 10, atol=1e-6)
    assert "open the middle drawer" in [text.get_text() for text in figure.texts]


def test_a_wide_part_takes_several_panels(copy_set, pyav):
    folder = copy_set("first")
    (folder / "meta" / "modality.json").unlink()
    dataset = LeRobotDataset(folder)
    figure = contact_sheet(dataset, dataset.listed[0], pyav)
    titles = [axes.get_title(loc="left") for axes in figure.axes if not axes.images]
    assert titles == ["state: state [0:7]", "state: state [7:8]", "action: action"]
    with pytest.raises(DataError, match=r"no episode 7\n  why: listed: 0 to 1"):
        find_episode(dataset, 7)


def test_show_command(copy_set, tmp_path, monkeypatch, capsys):
    folder = copy_set("first")
    monkeypatch.chdir(tmp_path)
    before = sorted(folder.rglob("*"))
    assert main(["data", "show", "first", "1", "--frames", "4"]) == 0
    assert "first_episode_1.png is written" in capsys.readouterr().out
    picture = matplotlib.image.imread(tmp_path / "first_episode_1.png")
    assert picture.shape[1] == 1500
    assert sorted(folder.rglob("*")) == before
    assert main(["data", "show", "first", "9"]) == 2


def test_stats_command(copy_set, tmp_path, capsys):
    folder = copy_set("first")
    assert main(["data", "stats", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mean", "std", "min", "max", "q01", "q99"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    actions = np.concatenate([pq.read_table(p)["action"].to_pylist() for p in sorted(folder.rglob("*.parquet"))])
    assert rows["action.gripper"][2:4] == [f"{actions[:, 6].min():.4g}", f"{actions[:, 6].max():.4g}"]
    assert main(["data", "stats", str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == column_statistics(sorted(folder.rglob("*.parquet")))
    assert main(["data", "stats", str(folder), "--out", str(folder / "meta" / "stats_gr00t.json")]) == 0
    assert json.loads((folder / "meta" / "stats_gr00t.json").read_text()) == printed
