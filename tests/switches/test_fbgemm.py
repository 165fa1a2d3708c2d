import pytest

pytest.importorskip("torchrec")


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_one_lookup_gives_what_26_bags_give_in_inference_and_over_steps_of_training(relative_error, mode):
    assert relative_error("dlrm", mode, "fbgemm", pooling="3") < 1e-5


def test_26_bags_become_one_lookup(build):
    kinds = [type(module).__name__ for module in build("dlrm", "infer", "fbgemm").model.modules()]
    assert kinds.count("EmbeddingBag") == 0
    assert sum("SplitTableBatchedEmbeddingBags" in kind for kind in kinds) == 1


def test_it_says_why_it_does_not_apply(why_not):
    assert "already" in why_not("fbgemm", "dlrm", "infer", embedding="fbgemm")
    assert "row-wise Adagrad" in why_not("fbgemm", "dlrm-dcnv2", "train")
    assert "no embedding operator" in why_not("fbgemm", "resnet50", "infer")


def test_lookups_without_bounds_check_give_the_same_and_the_step_says_what_an_id_outside_would_do(
    build, relative_error
):
    asked = {"embedding": "fbgemm", "pooling": "3"}
    step = build("dlrm", "infer", "fbgemm-no-bounds-check", **asked)
    lookups = [module for module in step.model.modules() if hasattr(module, "bounds_check_mode_int")]
    assert len(lookups) == 1
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode

    assert lookups[0].bounds_check_mode_int == BoundsCheckMode.NONE.value
    assert any("bounds check is off" in note for note in step.notes)
    assert relative_error("dlrm", "infer", "fbgemm-no-bounds-check", **asked) == 0


def test_there_is_no_check_to_leave_out_in_a_model_without_fbgemm(why_not, build):
    assert "no FBGEMM lookup" in why_not("fbgemm-no-bounds-check", "resnet50", "infer")
    assert why_not("fbgemm-no-bounds-check", "dlrm", "infer") == ""
    assert build("dlrm", "infer", "fbgemm", "fbgemm-no-bounds-check").notes
