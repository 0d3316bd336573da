import pytest

from sizing.catalog import gpu, gpus, overlay, price, resolve_gpu
from sizing.catalog.overlay import forget_overlays
from sizing.errors import InputError, UnknownFile, UnknownGpu


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    monkeypatch.setenv("SIZING_CONFIG_DIR", str(tmp_path / "config"))
    forget_overlays()
    yield
    forget_overlays()


def written(tmp_path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_users_file_adds_an_accelerator(tmp_path):
    file = written(tmp_path, '[gpus.mine]\nlike = "h100-sxm"\nmemory_bytes = "64GB"\ntdp_w = 350\n')
    overlay(file)
    chip = gpu("mine")
    assert chip.memory_bytes == chip.process_memory_bytes == 64e9
    assert chip.peak_flops_per_s["bf16"] == pytest.approx(989.4e12)
    assert chip.facts["tdp_w"].basis == "user"
    assert chip.facts["tdp_w"].source == str(file)
    assert chip.facts["peak.bf16"].basis == "datasheet"
    assert "mine" in gpus()


def test_a_users_file_overrides_one_value(tmp_path):
    overlay(written(tmp_path, "[gpus.h100-sxm]\npeak_flops_per_s = {bf16 = 8e14}\n"))
    chip = gpu("h100")
    assert chip.peak_flops_per_s["bf16"] == 8e14
    assert chip.peak_flops_per_s["fp8"] == pytest.approx(1978.9e12)
    assert chip.facts["peak.bf16"].basis == "user"


def test_a_users_price_wins(tmp_path):
    overlay(written(tmp_path, "[prices.h100-sxm]\nusd_per_hour = 1.25\n"))
    assert price("h100").value == 1.25
    assert price("h100").basis == "user"


def test_the_config_folder_is_read(tmp_path):
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "gpus.toml").write_text('[lab]\nlike = "a100-80-sxm"\n', encoding="utf-8")
    (folder / "catalog.toml").write_text("[prices.lab]\nusd_per_hour = 0\n", encoding="utf-8")
    forget_overlays()
    assert gpu("lab").sm_count == 108
    assert price("lab").value == 0.0
    assert resolve_gpu("lab") == ("lab", "")


def test_forgetting_restores_the_shipped_values(tmp_path):
    overlay(written(tmp_path, "[gpus.h100-sxm]\ntdp_w = 1\n"))
    assert gpu("h100").tdp_w == 1
    forget_overlays()
    assert gpu("h100").tdp_w == 700


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[gpus.x]\n", "memory_bytes"),
        ('[gpus.x]\nlike = "h100"\nbandwith = 3\n', "bandwith"),
        ('[gpus.x]\nlike = "h100"\ntdp_w = -3\n', "tdp_w"),
        ('[gpus.x]\nlike = "h100"\nmemory_bandwidth_bytes_per_s = nan\n', "memory_bandwidth_bytes_per_s"),
        ('[gpus.x]\nlike = "h100"\npeak_flops_per_s = {fp5 = 1}\n', "fp5"),
        ('[gpus.x]\nlike = "h100"\npeak_flops_per_s = 3\n', "peak_flops_per_s"),
        ('[gpus.x]\nlike = "h100"\nwords = 3\n', "words"),
        ('[gpus.x]\nlike = "x"\n', "itself"),
        ('[gpus.x]\nlike = "y"\n[gpus.y]\nlike = "x"\n', "itself"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_name(tmp_path, text, names):
    overlay(written(tmp_path, text))
    with pytest.raises(InputError, match=names):
        gpu("x")


@pytest.mark.parametrize("text", ["[gpu.x]\n", "not toml", "[gpus]\nx = 3\n", "[gpus.x\n", "a = 1\n"])
def test_a_wrong_file_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="catalogue file"):
        overlay(written(tmp_path, text))


def test_a_missing_file_and_a_missing_base_are_named(tmp_path):
    with pytest.raises(UnknownFile, match=r"nowhere\.toml"):
        overlay(tmp_path / "nowhere.toml")
    overlay(written(tmp_path, '[gpus.x]\nlike = "h900"\n'))
    with pytest.raises(UnknownGpu, match="h900"):
        gpu("x")


def test_a_wrong_price_is_refused(tmp_path):
    overlay(written(tmp_path, '[prices.h100-sxm]\nusd_per_hour = "cheap"\n'))
    with pytest.raises(InputError, match="cheap"):
        price("h100")
