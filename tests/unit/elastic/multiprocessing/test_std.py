from __future__ import annotations

import pytest

from planaria.elastic.multiprocessing import Std, to_map


def test_one_mask_stands_for_every_rank() -> None:
    assert [Std.from_str(text) for text in "0123"] == [Std.NONE, Std.OUT, Std.ERR, Std.ALL]


def test_a_list_has_a_mask_for_each_rank_also_above_nine() -> None:
    assert Std.from_str("0:3,1:0,10:1,123:2") == {0: Std.ALL, 1: Std.NONE, 10: Std.OUT, 123: Std.ERR}


@pytest.mark.parametrize("text", ["", "4", "01", "0:4", "0:1,", ":1", "1:", "a:1", "0=1", "-1"])
def test_anything_else_is_refused_in_torch_s_words(text: str) -> None:
    with pytest.raises(ValueError, match="does not match: <"):
        Std.from_str(text)


def test_a_map_that_leaves_a_rank_out_means_no_stream_of_it() -> None:
    assert to_map(Std.OUT, 2) == {0: Std.OUT, 1: Std.OUT}
    assert to_map({1: Std.OUT}, 3) == {0: Std.NONE, 1: Std.OUT, 2: Std.NONE}
