"""How rows are laid out: ranks and copies, attention that is data-parallel, racks taken as pools."""

import pytest

from sizing.architecture import read_model
from sizing.catalog import gpu
from sizing.deployment import Parallelism
from sizing.validation.cases import INPUTS, read_case
from sizing.validation.layouts import LARGEST_TP, Notes, layout_of, pools_of, rack_pools, wider_layouts
from sizing.validation.serving import predict_case, predict_row, read_rows, settled

LATENT, GROUPED, DENSE = "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B", "meta-llama/Llama-3.1-70B-Instruct"
RACK = {
    "id": "rack", "engine": "TensorRT-LLM", "model": LATENT, "gpu": "GB200", "num_gpus": "36", "tp": "36",
    "weight_precision": "fp4", "isl": "1024", "osl": "1024", "load_kind": "concurrency", "load_value": "4096",
    "len_dist": "fixed", "deploy": "agg", "quality": "B",
}  # fmt: skip


def layout(row, name=LATENT, chip="h200", weights=None):
    notes = Notes()
    found, replicas = layout_of(row, read_model(name), gpu(chip), weights, notes)
    return found, replicas, notes.texts


def racked(gpus, tokens=(1024.0, 1024.0), users=1e9, name=LATENT):
    notes = Notes()
    return rack_pools({"tp": str(gpus)}, read_model(name), tokens, users, notes), notes.texts


# -- ranks and copies ------------------------------------------------------------------------------------


def test_stated_ranks_are_kept_and_the_rest_are_copies():
    found, replicas, notes = layout({"tp": "4", "pp": "2", "num_gpus": "16"}, DENSE)
    assert (found, replicas, notes) == (Parallelism(tp=4, pp=2), 2.0, [])


def test_unstated_ranks_are_the_fewest_that_hold_the_weights():
    # 70.6e9 parameters of 2 bytes are 141 GB: two GPUs of 141 GB hold them in 0.8 of their memory, one does not.
    found, replicas, notes = layout({"num_gpus": "8"}, DENSE)
    assert (found, replicas) == (Parallelism(tp=2), 4.0)
    assert notes == ["TP2: the smallest that holds the weights"]
    assert layout({"num_gpus": "8"}, DENSE, weights="fp8")[0] == Parallelism(tp=1)


@pytest.mark.parametrize("row", [{"load_kind": "offline"}, {"len_dist": "mlperf-openorca", "load_kind": "concurrency"}])
def test_latent_attention_beside_experts_is_data_parallel_offline(row):
    found, replicas, notes = layout({**row, "num_gpus": "8"})
    assert (found, replicas) == (Parallelism(dp=8, ep=8), 1.0)
    assert "attention data-parallel over 8 GPUs" in notes[0]
    found, replicas, _ = layout({**row, "num_gpus": "16"}, chip="gb200-nvl72", weights="nvfp4")
    assert (found, replicas) == (Parallelism(dp=4, ep=4), 4.0)  # nodes of four


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"load_kind": "concurrency"}, LATENT),  # online: latency, not room, is what is asked
        ({"tp": "8"}, LATENT),  # stated
        ({"num_gpus": "1"}, LATENT),
        ({}, GROUPED),  # heads are shared out: no copies
        ({}, DENSE),
    ],
)
def test_other_rows_are_tensor_parallel(change, name):
    found, _, notes = layout({"num_gpus": "8", "load_kind": "offline", **change}, name)
    assert found.dp == 1
    assert not any("data-parallel" in text for text in notes)


def test_rows_that_name_data_parallel_attention_have_it():
    found, replicas, _ = layout({"tp": "8", "num_gpus": "8", "notes": "DP-attention on"})
    assert (found, replicas) == (Parallelism(tp=1, dp=8), 1.0)


@pytest.mark.parametrize(
    ("row", "found", "replicas"),
    [
        ({"ep": "8", "num_gpus": "8"}, Parallelism(tp=8, ep=8), 1.0),
        ({"ep": "8", "dp": "8", "num_gpus": "8"}, Parallelism(dp=8, ep=8), 1.0),
        ({"ep": "16", "dp": "8", "num_gpus": "16"}, Parallelism(tp=2, dp=8, ep=16), 1.0),
        ({"ep": "4", "num_gpus": "8"}, Parallelism(tp=4, ep=4), 2.0),
        ({"deploy": "--ep-size 8", "num_gpus": "8"}, Parallelism(tp=8, ep=8), 1.0),
        ({"dp": "8", "num_gpus": "8"}, Parallelism(dp=8), 1.0),
    ],
)
def test_ranks_of_experts_without_tensor_parallelism_stated_are_the_gpus(row, found, replicas):
    assert layout(row)[:2] == (found, replicas)


@pytest.mark.parametrize(
    ("row", "found", "replicas"),
    [
        ({"tp": "1", "ep": "4", "dp": "1", "num_gpus": "4"}, Parallelism(dp=4, ep=4), 1.0),
        ({"tp": "2", "ep": "8", "num_gpus": "16"}, Parallelism(tp=2, dp=4, ep=8), 2.0),
        ({"tp": "8", "ep": "8", "num_gpus": "8"}, Parallelism(tp=8, ep=8), 1.0),
        ({"tp": "1", "ep": "8", "num_gpus": "4"}, Parallelism(), 4.0),  # more ranks than GPUs: taken as stated wrongly
    ],
)
def test_experts_on_more_gpus_than_a_tensor_make_attention_data_parallel(row, found, replicas):
    assert layout(row, GROUPED)[:2] == (found, replicas)


@pytest.mark.parametrize(
    ("row", "name", "found", "replicas"),
    [
        # dp ranks of attention are the tp ranks seen again: eight GPUs, not 64
        ({"tp": "8", "dp": "8", "ep": "8", "num_gpus": "64"}, LATENT, Parallelism(dp=8, ep=8), 1.0),
        ({"tp": "8", "dp": "8", "ep": "64", "num_gpus": "64"}, LATENT, Parallelism(dp=8, ep=8), 1.0),
        ({"tp": "4", "dp": "4", "ep": "4", "num_gpus": "16"}, GROUPED, Parallelism(dp=4, ep=4), 1.0),
        # not the same ranks, or no experts: as the columns have it
        ({"tp": "8", "dp": "4", "ep": "8", "num_gpus": "32"}, LATENT, Parallelism(tp=8, dp=4, ep=8), 1.0),
        ({"tp": "4", "dp": "4", "ep": "2", "num_gpus": "16"}, LATENT, Parallelism(tp=4, dp=4, ep=2), 1.0),
        ({"tp": "4", "dp": "4", "ep": "4", "num_gpus": "16"}, DENSE, Parallelism(tp=4, dp=4, ep=4), 1.0),
        ({"tp": "1", "dp": "1", "num_gpus": "1"}, LATENT, Parallelism(), 1.0),
    ],
)
def test_ranks_that_a_computed_number_of_gpus_counts_twice_are_counted_once(row, name, found, replicas):
    said, copies, notes = layout({**row, "notes": "num_gpus=tp*pp*dp as the source has it"}, name)
    assert (said, copies) == (found, replicas)
    assert any("counts" in text for text in notes) == (found.tp == 1 < found.dp)
    # a number of GPUs that is a count leaves no doubt
    assert layout(row, name)[0] == Parallelism(tp=int(row["tp"]), dp=int(row["dp"]), ep=int(row.get("ep", "1")))


# -- layouts left open -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smallest", "copies", "chip", "wider"),
    [
        (1, 8.0, "h200", {2: 4.0, 4: 2.0, 8: 1.0}), (2, 4.0, "h200", {4: 2.0, 8: 1.0}), (8, 1.0, "h200", {}),
        (1, 6.0, "h200", {2: 3.0}),  # four and eight do not divide six
        (2, 18.0, "gb200-nvl72", {4: 9.0}),  # nodes of four
        (1, 1.0, "h200", {}),
    ],
)  # fmt: skip
def test_wider_groups_of_the_same_gpus(smallest, copies, chip, wider):
    found = wider_layouts({}, Parallelism(tp=smallest), copies, gpu(chip))
    assert found == tuple((Parallelism(tp=tp), n) for tp, n in wider.items())
    assert all(each.gpus * n == smallest * copies for each, n in found)


@pytest.mark.parametrize("known", [Parallelism(tp=2, pp=2), Parallelism(dp=2, ep=2), Parallelism(tp=2, dp=2)])
def test_no_other_layout_where_one_is_stated_or_more_than_tensor_parallel(known):
    assert wider_layouts({"tp": "2"}, Parallelism(tp=2), 4.0, gpu("h200")) == ()
    assert wider_layouts({}, known, 2.0, gpu("h200")) == ()


OPEN = {
    "id": "open", "engine": "TensorRT-LLM", "model": "meta-llama/Llama-3.1-70B-Instruct", "gpu": "H200-SXM-141GB",
    "num_gpus": "8", "weight_precision": "fp8", "isl": "1024", "osl": "256", "load_kind": "offline",
    "load_value": "inf", "len_dist": "fixed",
}  # fmt: skip


def test_only_loads_that_seek_the_most_leave_the_layout_open():
    assert [layout.tp for layout, _ in read_case(OPEN).choices] == [2, 4, 8]
    for change in ({"load_kind": "concurrency", "load_value": "64"}, {"tp": "2"},
                   {"load_kind": "request_rate", "load_value": "3"}):  # fmt: skip
        case = read_case({**OPEN, **change})
        assert case.choices == ()
        assert settled(case) is case


@pytest.mark.parametrize(
    "change",
    [
        {}, {"gpu": "H100-SXM-80GB"}, {"gpu": "L40S", "model": "meta-llama/Llama-3.1-8B-Instruct"},
        {"model": "Qwen/Qwen3-30B-A3B", "isl": "8192"},
        {"len_dist": "mlperf-openorca", "model": "llama2-70b", "load_kind": "request_rate", "load_value": "",
         "notes": "llama2-70b-99 interactive", "isl": "", "osl": ""},
    ],
)  # fmt: skip
def test_the_layout_taken_carries_the_most_and_never_less_than_the_smallest(change):
    case = read_case({**OPEN, **change})

    def carried(each):
        return predict_case(each, draws=0).output_tokens_per_s.value * each.replicas

    one = {"tp": str(case.deployment.parallelism.tp)}
    every = [carried(read_case({**OPEN, **change, **one}))]
    every += [carried(read_case({**OPEN, **change, "tp": str(layout.tp)})) for layout, _ in case.choices]
    found = settled(case)
    assert found.choices == ()
    assert found.deployment.parallelism.gpus * found.replicas == 8
    assert carried(found) == pytest.approx(max(every), rel=1e-9)
    kept = found.deployment.parallelism == case.deployment.parallelism
    assert any("it carries more than" in text for text in found.assumptions) == (not kept)
    assert any("smallest that holds" in text for text in found.assumptions) == kept


def test_a_tight_pace_takes_wider_groups_than_the_most_tokens_do():
    """70B in one byte reads 69 GB a step: 14 ms at H200's 4.8 TB/s. Within 40 / 1.2 ms little batch is left at TP1."""
    paced = {"len_dist": "mlperf-openorca", "model": "llama2-70b", "load_kind": "request_rate", "load_value": "",
             "isl": "", "osl": ""}  # fmt: skip
    found = {
        name: settled(read_case({**OPEN, **paced, "notes": notes})).deployment.parallelism.tp
        for name, notes in (("server", "llama2-70b-99 server"), ("interactive", "llama2-70b-99 interactive"))
    }
    assert found["interactive"] >= found["server"]


# -- racks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "tokens", "users", "decode", "each"),
    [
        # Prefill's share of the work, I / (I + 4 O), of 36 GPUs: 1/5 -> 28.8 decode, nearest of 8, 16, 24, 32 is 32.
        (36, (1024, 1024), 1e4, 32, Parallelism(dp=32, ep=32)),
        # 16384 / (16384 + 4096) = 4/5 -> 7.2 of 36 decode; half the prompt: 2/3 -> 16 of 48.
        (36, (16384, 1024), 1e4, 8, Parallelism(dp=8, ep=8)),
        (48, (8192, 1024), 1e4, 16, Parallelism(dp=16, ep=16)),
        # 1/5 of 28 -> 22.4: 24, which no one worker of 8, 16 or 32 is, so three of eight.
        (28, (1024, 1024), 1e4, 24, Parallelism(tp=8, ep=8)),
        # Fewer than four users a GPU: 15 per cent prefill, decode for latency in workers of eight.
        (36, (8192, 1024), 143, 32, Parallelism(tp=8, ep=8)),
        (20, (1024, 1024), 8, 16, Parallelism(tp=8, ep=8)),
        (17, (1024, 1024), 1e4, 8, Parallelism(dp=8, ep=8)),
    ],
)  # fmt: skip
def test_a_rack_is_shared_out_as_the_tokens_ask(gpus, tokens, users, decode, each):
    pools, notes = racked(gpus, tokens, users)
    assert pools.decode == each
    assert pools.decode_workers * each.gpus == decode
    assert pools.prefill == Parallelism(dp=4, ep=4)
    assert pools.prefill_workers == (gpus - decode) // 4
    assert notes == [f"{gpus} GPUs taken as pools: {decode} decode, the rest prefill"]


@pytest.mark.parametrize("gpus", range(LARGEST_TP + 1, 73))
def test_pools_never_have_more_gpus_than_the_rack(gpus):
    for tokens in ((128.0, 4096.0), (1024.0, 1024.0), (16384.0, 64.0)):
        for users in (1.0, 1e5):
            pools, _ = racked(gpus, tokens, users)
            used = pools.prefill_workers * pools.prefill.gpus + pools.decode_workers * pools.decode.gpus
            assert gpus - 3 <= used <= gpus
            assert pools.prefill_workers >= 1
            assert pools.decode_workers == int(pools.decode_workers) >= 1


def test_longer_prompts_get_more_prefill_workers():
    counts = [racked(64, (new, 512.0))[0].prefill_workers for new in (128.0, 1024.0, 4096.0, 32768.0)]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


@pytest.mark.parametrize(("gpus", "name"), [(8, LATENT), (16, LATENT), (32, DENSE), ("", LATENT)])
def test_ordinary_layouts_are_not_racks(gpus, name):
    assert racked(gpus, name=name) == (None, [])


def test_a_row_of_a_rack_is_read_as_pools_and_answered():
    case = read_case(RACK)
    assert case.pools.decode == case.deployment.parallelism == Parallelism(dp=32, ep=32)
    assert case.replicas == 1.0
    assert case.assumptions[-1] == "36 GPUs taken as pools: 32 decode, the rest prefill"
    assert read_case({**RACK, "tp": "16", "num_gpus": "16"}).pools is None
    found = predict_row(RACK, draws=0)
    assert 0 < found.values["tpot_ms"].value < found.values["ttft_ms"].value
    assert found.values["output_tok_s"].value <= 4096 / found.values["tpot_ms"].value * 1e3


def test_a_disaggregated_row_keeps_the_pools_it_states():
    notes = "prefill={num_workers:2, tp:4} decode={num_workers:1, tp:8}"
    pools = pools_of({"deploy": "disagg", "notes": notes}, Notes())
    assert (pools.prefill, pools.decode) == (Parallelism(tp=4), Parallelism(tp=8))
    assert (pools.prefill_workers, pools.decode_workers) == (2.0, 1.0)
    stated = read_case({**RACK, "deploy": "disagg", "notes": notes}).pools
    assert stated == pools
    assert pools_of({"deploy": "agg", "notes": notes}, Notes()) is None


def test_predictions_of_racks_and_of_offline_rows_do_not_see_what_was_measured():
    rows = [r for r in read_rows() if (r["tp"] or "0").split(".")[0] in ("20", "24", "36", "52")][:4]
    rows += [RACK, {**RACK, "tp": "", "num_gpus": "8", "gpu": "H200-SXM-141GB", "load_kind": "offline",
                    "weight_precision": "fp8", "load_value": ""}]  # fmt: skip
    assert len(rows) >= 5
    for row in rows:
        measured = [c for c in (*row, "tpot_mean_ms", "ttft_mean_ms", "output_tok_s") if c not in INPUTS]
        ours = predict_row(row, draws=2).cells()
        assert ours["tpot_ms"]
        assert predict_row({**row, **dict.fromkeys(measured, "")}, draws=2).cells() == ours
        assert predict_row({**row, **dict.fromkeys(measured, "123.4")}, draws=2).cells() == ours
