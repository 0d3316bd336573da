"""``--configs`` of every verb that has it: a folder that is not there is refused, whatever the rows."""

import inspect
from importlib import import_module

import pytest

from sizing.cli import run, verbs

VERBS = {
    words: module
    for module, words in verbs().items()
    if "configs" in inspect.signature(import_module(f"sizing.cli.{module}").command).parameters
}


def test_five_verbs_read_a_folder_of_configs():
    assert {" ".join(words) for words in VERBS} == {
        "calibrate serving", "validate latency", "validate memory", "validate parameters", "validate serving",
    }  # fmt: skip


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
@pytest.mark.parametrize("kind", ["nothing", "a file"])
def test_a_folder_that_is_not_there_is_refused_before_anything_is_read(words, kind, capsys, tmp_path):
    folder = tmp_path / "configs"
    if kind == "a file":
        folder.write_text("{}")
    code = run([*words, str(tmp_path / "rows.csv"), "--configs", str(folder), "--out", str(tmp_path / "out.csv")])
    shown = capsys.readouterr()
    assert code == 4
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert f"--configs: no folder {str(folder)!r}" in shown.err
    assert not (tmp_path / "out.csv").exists()


def test_a_folder_that_is_there_is_read(capsys, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id,engine,model,gpu,tp,num_gpus,isl,osl,load_kind,load_value,quality\n")
    assert run(["validate", "serving", str(rows), "--configs", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
