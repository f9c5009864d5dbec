"""Loading: layers, types, sources, and every mistake reported in one error."""

from __future__ import annotations

import pytest

from vla_train.config import Config, ConfigError, load_config, plain, save_config
from vla_train.config.show import as_json, as_text


def failure(*arguments, **keywords) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(*arguments, **keywords)
    return str(caught.value)


def test_later_layers_win_and_sources_tell(base, write):
    second = write("train:\n  max_steps: 7\n  warmup_steps: 2\n", "second.yaml")
    config, sources = load_config([base, second], ["train.max_steps=9", "model.width=4"])
    assert isinstance(config, Config)
    assert (config.train.max_steps, config.train.warmup_steps, config.model.width) == (9, 2, 4)
    assert sources.of("train.max_steps") == "override 'train.max_steps=9'"
    assert sources.of("train.warmup_steps") == f"{second}:3"
    assert sources.of("data.datasets[0].path") == f"{base}:4"
    assert sources.of("data.datasets[0].weight") == "default"
    assert sources.of("model.rate") == "default of model toy"


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "0.00001", "'1e-5'"])
def test_scientific_notation_is_a_number(base, write, text):
    file = write(f"train: {{learning_rate: {{base: {text}}}}}\nmodel: {{rate: {text}}}\n", "lr.yaml")
    config, _ = load_config([base, file])
    assert config.train.learning_rate["base"] == 1e-5
    assert config.model.rate == 1e-5


def test_mappings_merge_with_the_default(base):
    config, _ = load_config([base], ["train.learning_rate.head=1e-4"])
    assert config.train.learning_rate == {"base": 1e-5, "head": 1e-4}


def test_integral_float_is_a_whole_number(base):
    assert load_config([base], ["train.max_steps=1e5"])[0].train.max_steps == 100_000


def test_text_typed_on_the_command_line_stays_text(base):
    assert load_config([base], ["run.id=0425"])[0].run.id == "0425"


def test_items_of_a_list_can_be_overridden(base):
    config, sources = load_config([base], ["data.datasets[0].weight=2"])
    assert config.data.datasets[0].weight == 2.0
    assert config.data.datasets[0].path == "a"
    assert "override" in sources.of("data.datasets[0].weight")


def test_references_are_resolved(base):
    config, _ = load_config([base], ["run.wandb_project=${run.id}"])
    assert config.run.wandb_project == "demo"
    assert "cannot be resolved" in failure([base], ["run.id=${run.nothing}"])


def test_saved_configuration_reads_back_equal(base, tmp_path):
    config, _ = load_config([base], ["model.rate=1e-7", "train.optimizer.eps=1e-8", "train.freeze=[a.b, c]"])
    save_config(config, tmp_path / "saved.yaml", header="written by a test")
    again, sources = load_config([tmp_path / "saved.yaml"])
    assert again == config
    assert not [key for key, _ in sources.items() if sources.of(key) == "default"]


def test_all_problems_come_in_one_error(base, write):
    file = write("train:\n  max_step: 5\n  scheduler: {name: 3}\nparallel: {processes: two}\n", "bad.yaml")
    message = failure([base, file], ["model.widht=3", "eval.episodes=[1]", "run.loggers=jsonl", "trian.x=1"])
    assert f"train.max_step ({file}:2): unknown key; did you mean 'train.max_steps'?" in message
    assert "train.scheduler.name" in message
    assert "is 3, expected text; write '3' in quotes" in message
    assert "is 'two', expected a whole number" in message
    assert "model.widht (override 'model.widht=3'): unknown key; did you mean 'model.width'?" in message
    assert "eval.episodes (override 'eval.episodes=[1]'): is [1], expected a whole number" in message
    assert "write [jsonl]" in message
    assert "trian (override 'trian.x=1'): unknown key; did you mean 'train'?" in message
    assert "8 problems" not in message
    assert "7 problems" in message


def test_right_name_in_the_wrong_section(base):
    assert "did you mean 'train.max_steps'?" in failure([base], ["run.max_steps=5"])


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("parallel.strategy=zero4", "use ddp, zero2 or zero3"),
        ("train.max_steps=0", "use at least 1"),
        ("train.learning_rate.base=-1", "use 0 or more"),
        ("model.width=0", "model.width is 0; it must be at least 1"),
        ("run.loggers=[json]", "does not know json"),
        ("run.id=a/b", "name of one folder"),
        ("data.mixture=x", "both data.mixture and data.datasets are set"),
        ("train.gradient_clipping=0", "use a number above 0, or null"),
        ("train.optimizer.betas=[0.9]", "two numbers"),
        ("data.datasets=[{weight: 1}]", "data.datasets[0].path"),
        ("train=5", "expected a section of keys"),
        ("model=5", "expected a section of keys"),
        ("train.max_steps=[", "cannot be set"),
        ("data.datasets[3].weight=2", "cannot be set"),
        ("stray", "'stray' is not a setting"),
    ],
)
def test_values_that_cannot_work(base, override, expected):
    assert expected in failure([base], [override])


def test_compiling_and_sharded_parameters_exclude_each_other(base):
    assert "whose parameters are gathered" in failure([base], ["train.compile=true", "parallel.strategy=zero3"])
    assert load_config([base], ["train.compile=true", "parallel.strategy=zero2"])[0].train.compile


def test_files_that_cannot_be_read(write, tmp_path, base):
    assert f"did you mean {base}?" in failure([tmp_path / "confg.yaml"])
    assert f"{tmp_path} holds: config.yaml" in failure([tmp_path / "zzz" / "file"])
    assert "not valid YAML" in failure([write("a: [1\n", "broken.yaml")])
    assert "not valid YAML" in failure([write("run: {id: a, id: b}\n", "twice.yaml")])
    assert "not a mapping" in failure([write("- 1\n", "list.yaml")])


def test_empty_section_is_an_empty_section(base, write):
    assert load_config([base, write("train:\n", "empty.yaml")])[0].train.max_steps == Config().train.max_steps


def test_unknown_model_names_the_installed(base):
    with pytest.raises(Exception, match="did you mean 'toy'"):
        load_config([base], ["model.name=toi"])


def test_show_prints_value_and_source(base):
    config, sources = load_config([base], ["train.max_steps=9"])
    lines = as_text(config, sources).splitlines()
    assert any(
        line.startswith("train.max_steps: 9 ") and line.endswith("override 'train.max_steps=9'") for line in lines
    )
    assert any(line.startswith("train.gradient_clipping: 1.0 ") and line.endswith("# default") for line in lines)
    assert any(line.startswith("model.rate: null ") and line.endswith("# default of model toy") for line in lines)
    assert '"value": 9' in as_json(config, sources)
    changed = as_text(config, sources, changed_only=True)
    assert "gradient_clipping" not in changed
    assert "run.id: demo" in changed


def test_plain_is_what_hooks_get(base):
    assert plain(load_config([base])[0])["model"]["head"] == {"layers": 2, "dtype": "float32"}
