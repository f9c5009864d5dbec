"""The pytest plugin `vla_backend.testing`, used as the authors of a model use it."""

from __future__ import annotations

import ast
import os
import textwrap
from pathlib import Path

import pytest

from tests.thirdparty.install import ROOT, environment, paper_runs
from vla_backend.testing.device_names import in_package

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["vla_backend.testing"]'


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, site: Path) -> pytest.Pytester:
    """A test suite of somebody's model, in a process that has the examples installed."""
    for name in [name for name in os.environ if name.startswith("VLA_")]:
        monkeypatch.delenv(name)
    for name, value in environment(site).items():
        monkeypatch.setenv(name, value)
    pytester.makeconftest(CONFTEST)
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *options)


def package(suite: pytest.Pytester, name: str, **modules: str) -> None:
    folder = suite.mkpydir(name)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(text))


STRICT = """
    import pytest, torch
    from vla_backend.testing import StrictError
    from clean.model import Clean
    from chip.model import Chip

    @pytest.fixture
    def x(backend):
        return torch.randn(4, 8).to(backend.device)

    def test_a_model_bound_to_no_chip_passes(strict_mode, backend, x):
        model = Clean(backend).to(backend.device)
        with strict_mode(model):
            assert model(x).dtype == torch.float32
            assert model.features(x).dtype == torch.bfloat16

    def test_names_in_the_source_and_in_a_call(strict_mode, backend, x):
        model = Chip(backend).to(backend.device)
        with pytest.raises(StrictError) as error, strict_mode(model):
            model.move(x, "xp" + "u:1")
        for said in ("chip/model.py:9: names a device: 'cuda'", "chip/model.py:12: names a device: .npu",
                     "chip/model.py:6: names a device: torch_npu", "names a device: to('xpu:1')"):
            assert said in str(error.value), said
        assert isinstance(error.value.__cause__, (RuntimeError, AssertionError, NotImplementedError))

    def test_pinning(strict_mode, backend, x):
        model = Clean(backend)
        with pytest.raises(StrictError) as error, strict_mode(model):
            try:
                torch.ones(3).pin_memory()
            except RuntimeError:
                pass
        assert f"pin_memory pins memory, which backend '{backend.name}' cannot" in str(error.value)
        with pytest.raises(StrictError, match="DataLoader"), strict_mode(model):
            torch.utils.data.DataLoader([1], pin_memory=True)

    def test_a_region_left_in_bfloat16(strict_mode, backend, x):
        model = Clean(backend).to(backend.device)
        with pytest.raises(StrictError) as error, strict_mode(model):
            features = model.features(x)
            with backend.fp32_region():
                features.square().mean()
        assert "pow is computed in torch.bfloat16 inside backend.fp32_region()" in str(error.value)
        assert "test_strict.py:" in str(error.value)
        assert str(error.value).count("pow is computed") == 1

    def test_an_error_of_the_model_stays_its_own(strict_mode, backend):
        with pytest.raises(ZeroDivisionError), strict_mode(Clean(backend)):
            1 / 0
        with backend.fp32_region():  # and nothing is watched any more
            torch.ones(2, dtype=torch.bfloat16).square()
"""
CLEAN = """
    import torch
    from torch import nn

    class Clean(nn.Module):
        def __init__(self, backend):
            super().__init__()
            self.backend, self.linear = backend, nn.Linear(8, 8)

        def features(self, x):
            return self.linear(x)

        def forward(self, x):
            y = self.features(x)
            with self.backend.fp32_region():
                return y.float().square().mean()
"""
CHIP = """
    import torch
    from torch import nn

    try:
        import torch_npu
    except ImportError:
        pass
    DEVICE = "cuda"

    def wait():
        torch.npu.synchronize()

    class Chip(nn.Linear):
        def __init__(self, backend):
            super().__init__(8, 8)

        def move(self, x, where):
            return x.to(where)
"""


def test_strict_mode_on_every_backend_here(suite: pytest.Pytester) -> None:
    package(suite, "clean", model=CLEAN)
    package(suite, "chip", model=CHIP)
    suite.makepyfile(test_strict=STRICT)
    backends = ["cpu", "paper"] if paper_runs() else ["cpu"]
    run(suite, "--vla-backend", ",".join(backends)).assert_outcomes(passed=5 * len(backends))


FIXTURES = """
    import json
    import pytest, torch
    from pathlib import Path
    from torch import nn
    from vla_train.nn import DrawError, Draws

    class Noisy(nn.Module):
        def __init__(self, extra=0):
            super().__init__()
            self.draws, self.extra = Draws(), extra

        def forward(self, x):
            for _ in range(self.extra):
                self.draws.rand((1,), device=x.device)
            return x + self.draws.randn_like(x) + self.draws.beta(2.0, 3.0, 4, device=x.device)[:, None]

    def test_a_cosmos_pipeline(tiny_cosmos):
        from diffusers import AutoencoderKLWan, CosmosTransformer3DModel
        CosmosTransformer3DModel.from_pretrained(tiny_cosmos, subfolder="transformer")
        AutoencoderKLWan.from_pretrained(tiny_cosmos, subfolder="vae")

    def test_a_qwen3_vl(tiny_qwen3_vl, tiny_weights):
        from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration
        model, loaded = Qwen3VLForConditionalGeneration.from_pretrained(tiny_qwen3_vl, output_loading_info=True)
        assert not loaded["missing_keys"] and not loaded["unexpected_keys"]
        tokens = AutoTokenizer.from_pretrained(tiny_qwen3_vl)("pick up the block", return_tensors="pt")
        assert model(**tokens).logits.shape[:2] == tokens["input_ids"].shape
        assert tiny_weights("qwen3_vl") == tiny_qwen3_vl
        with pytest.raises(Exception, match="offered: cosmos_predict2_5, groot_n1_7, qwen3_vl"):
            tiny_weights("paligemma")

    def test_a_lerobot_set_without_findings(tiny_lerobot):
        from vla_train.cli import main
        assert main(["data", "check", str(tiny_lerobot)]) == 0
        assert json.loads((tiny_lerobot / "meta" / "info.json").read_text())["total_frames"] == 96

    def test_draws_are_replayed(recorded_draws, tmp_path, backend):
        from safetensors.torch import save_file
        x = torch.zeros(4, 2)
        first = Noisy()
        recording = recorded_draws.record(first)
        expected = first(x)
        save_file(recording.tensors(), tmp_path / "draws.safetensors")
        second = Noisy()
        recorded_draws.replay(second, tmp_path / "draws.safetensors")
        assert torch.equal(second(x), expected)
        third = Noisy(extra=1)
        recorded_draws.replay(third, recording)
        with pytest.raises(DrawError, match="asked for rand"):
            third(x)
        recorded_draws._replayed.pop()

    def test_a_recording_that_is_not_used_up(recorded_draws):
        first = Noisy()
        recording = recorded_draws.record(first)
        first(torch.zeros(4, 2))
        recorded_draws.replay(Noisy(), recording)

    def test_a_model_without_draws(recorded_draws):
        with pytest.raises(TypeError, match="no attribute 'draws'"):
            recorded_draws.record(nn.Linear(1, 1))
"""


def test_fixtures_of_the_engine(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_fixtures=FIXTURES)
    done = run(suite)
    done.assert_outcomes(passed=6, errors=1)
    done.stdout.fnmatch_lines(["*2 of 2 recorded draws were not used*"])


def test_backends_that_cannot_be_opened(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_it(backend): pass")
    run(suite, "--vla-backend", "cppu").stdout.fnmatch_lines(["*did you mean 'cpu'*"])
    for option, said in (("cpu,cpu", "*no list of different names*"), ("paper-sim", "*No simulator for 'paper'*")):
        done = run(suite, "--vla-backend", option)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        done.stderr.fnmatch_lines([said])


SIMULATOR = """
    import os, subprocess

    def add_arguments(parser):
        parser.add_argument("--devices", type=int, default=1)

    def start(options, command):
        print(f"simulating {options.devices}", flush=True)
        return subprocess.run(command, env={**os.environ, "SIMULATED": "1"}).returncode
"""


def test_a_simulated_backend_starts_the_session_inside_its_simulator(suite: pytest.Pytester) -> None:
    suite.makepyfile(made_up_simulator=SIMULATOR)
    info = suite.mkdir("made_up-1.0.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vla.simulators]\ncpu = made_up_simulator\n")
    suite.syspathinsert(suite.path)
    suite.makepyfile(
        test_it="""
        import os
        def test_it(backend):
            assert backend.name == "cpu" and os.environ["SIMULATED"] == "1"
        """
    )
    done = suite.runpytest_subprocess("-p", "no:cacheprovider", "-q", "--vla-backend", "cpu-sim", "test_it.py")
    done.stdout.fnmatch_lines(["simulating 1", "*1 passed*"])
    assert done.ret == 0


def test_importing_the_plugin_imports_no_torch(run_in, site: Path) -> None:
    done = run_in(site, "-c", "import sys, vla_backend.testing, vla_train.testing; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_device_names_in_source(tmp_path: Path) -> None:
    source = """
    import torch.xpu
    from torch import npu
    def f(x):
        '''Runs on cuda.'''
        print("no cuda device", "cpu", "meta", "cudas")
        return x.cuda() if x.is_cuda else x.to("mps:0")
    """
    (tmp_path / "m.py").write_text(textwrap.dedent(source))
    ast.parse(textwrap.dedent(source))
    found = [line.split(": names a device: ")[1].split(";")[0] for line in in_package(tmp_path)]
    assert sorted(found) == sorted(["torch.xpu", "torch.npu", ".cuda", ".is_cuda", "'mps:0'"])


def test_the_shipped_models_name_no_device() -> None:
    for folder in (ROOT / "models" / "dit4dit", ROOT / "models" / "groot"):
        assert not list(in_package(folder))
