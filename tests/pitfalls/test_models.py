"""Failures of models and their data: met with the naive code, gone through the package."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch

from vla_backend import activate
from vla_backend.errors import BackendError
from vla_dit4dit.action_head import FlowMatchingActionHead
from vla_dit4dit.config import ActionHeadConfig
from vla_groot import hub
from vla_groot.embodiments import SLOTS, resolve_tag
from vla_train.data.decoders import DECODERS, defect, installed
from vla_train.nn import Draws
from vla_train.worker import translated

ROOT = Path(__file__).parents[2]
WINDOW, HORIZON, WIDTH = 16, 8, 7


@pytest.fixture
def backend():
    return activate("cpu")


def test_actions_longer_than_the_horizon(backend) -> None:
    """A6: a window of 16 actions and their mask meet predictions of 8; the head cuts both in one place."""
    actions, mask = torch.randn(2, WINDOW, WIDTH), torch.ones(2, WINDOW, WIDTH, dtype=torch.bool)
    config = ActionHeadConfig(
        size="DiT-T", hidden_size=40, max_seq_len=64, num_layers=2, output_dim=40, action_dim=WIDTH, state_dim=0
    )
    config.action_horizon = HORIZON
    torch.manual_seed(0)
    head = FlowMatchingActionHead(config, 32).eval()
    features = torch.randn(2, 5, 32)
    predicted = head.sample(features, None, draws=Draws())
    assert predicted.shape == (2, HORIZON, WIDTH)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(16\) must match the size of tensor b \(8\)") as error:
        (actions - predicted).abs().mul(mask).sum()
    known = backend.translate_error(error.value)
    assert "action horizon" in known.why
    assert "action_horizon" in known.chinese

    def loss(actions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(2)
        return head.loss(features, actions, mask, None, draws=Draws(torch.Generator().manual_seed(1)))

    assert torch.equal(loss(actions, mask), loss(actions[:, -HORIZON:], mask[:, -HORIZON:]))
    mask[:, : WINDOW - HORIZON] = False
    assert torch.equal(loss(actions, mask), loss(actions[:, -HORIZON:], mask[:, -HORIZON:]))


def test_decoder_on_a_gpu_that_is_not_there() -> None:
    """A11: decord asked for gpu(0); the backend's context is the CPU and the frames come."""
    decord = pytest.importorskip("decord")
    video = next((ROOT / "examples" / "data").rglob("*.mp4"))
    backend = activate("ascend", check_available=False)
    with pytest.raises(Exception, match="CUDA not enabled") as error:
        decord.VideoReader(str(video), ctx=decord.gpu(0))
    known = backend.translate_error(error.value)
    assert "video_ctx" in known.remedy
    assert "解码" in known.chinese
    (issue,) = backend.check_config({"data": {"decoder": "decord-gpu"}}, {})
    assert (issue.level, issue.key) == ("error", "data.decoder")
    assert backend.video_ctx.device == "cpu"
    for name in backend.video_ctx.decoders:
        if installed(name) and not defect(name):
            reader = DECODERS[name].open(str(video), backend.video_ctx.device, 1)
            assert reader.frames(np.arange(10)).shape[0] == 10
            reader.close()


class TagOfAnEarlierRelease(Enum):
    """As upstream looks tags up: an enumeration of those of one release."""

    GR1 = "gr1"


def test_tag_of_another_release(backend) -> None:
    """B3: "Unknown tag" says nothing; here the message lists the known tags and the nearest ones."""
    with pytest.raises(ValueError, match="fourier_gr1") as naive:
        TagOfAnEarlierRelease("fourier_gr1")
    assert not any(tag in str(naive.value) for tag in SLOTS)
    assert backend.translate_error(ValueError("Unknown tag: fourier_gr1")).known
    with pytest.raises(BackendError) as error:
        resolve_tag("fourier_gr1")
    assert error.value.fix.startswith("did you mean 'robocasa_gr1_tabletop'")
    assert all(tag in error.value.why for tag in SLOTS)
    assert "标签" in translated(error.value, backend).chinese
    assert resolve_tag("LIBERO_PANDA") == "libero_sim"


def test_gated_repository(monkeypatch, tmp_path, backend) -> None:
    """B4: a gated repository answers 403; the error says which page to accept, and a local folder needs no hub."""
    from huggingface_hub import errors

    asked = []

    def gated(name, **options):
        asked.append(name)
        raise errors.GatedRepoError.__new__(errors.GatedRepoError)

    monkeypatch.setattr("huggingface_hub.snapshot_download", gated)
    with pytest.raises(errors.GatedRepoError) as naive:
        gated("nvidia/Cosmos-Reason2-2B")
    assert backend.translate_error(naive.value).known
    with pytest.raises(BackendError, match=r"accept it at https://huggingface\.co/nvidia/Cosmos-Reason2-2B") as error:
        hub.resolve("nvidia/Cosmos-Reason2-2B", what="backbone")
    assert "本地目录" in translated(error.value, backend).chinese
    asked.clear()
    (tmp_path / "Cosmos-Reason2-2B").mkdir()
    for path in (str(tmp_path / "Cosmos-Reason2-2B"), "Cosmos-Reason2-2B"):
        assert hub.resolve(path, near=[tmp_path], what="backbone") == tmp_path / "Cosmos-Reason2-2B"
    assert asked == []


def test_a_rank_shows_traceback_and_both_languages(tmp_path) -> None:
    """What the failure report prints: the original traceback, then what it means, in English and Chinese."""
    code = (
        "import torch\nfrom vla_backend import activate\nfrom vla_train.launch.failure import guard\n"
        "from vla_train.worker import translated\n"
        "def main():\n"
        "    backend = activate('cpu')\n"
        "    try:\n        torch.ones(2, dtype=torch.bfloat16).numpy()\n"
        "    except Exception as error:\n        raise translated(error, backend) from error\n"
        "print(guard(main))\n"
    )
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], capture_output=True, text=True, encoding="utf-8")
    before, _, after = done.stderr.partition("error: ")
    assert before.startswith("Traceback")
    assert "TypeError: Got unsupported ScalarType BFloat16" in before
    assert after.startswith("A bfloat16 tensor was converted to numpy directly.")
    assert "fix: Use backend.to_numpy" in after
    assert after.rstrip().splitlines()[-1].startswith("  中文: bfloat16")
    assert done.stdout.strip() == "2"
