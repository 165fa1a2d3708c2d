from addrfrac.switches import find_switch


def test_only_fp32_becomes_tf32_and_is_said_to_be_another_arithmetic(why_not, configured):
    switch = find_switch("tf32")
    assert not switch.exact
    assert why_not("tf32", "vit-l16", "infer") == ""
    assert switch.configure(configured("vit-l16", "infer")).dtype == "tf32"
    assert "bf16" in why_not("tf32", "vit-l16", "infer", dtype="bf16")
    assert "already" in why_not("tf32", "vit-l16", "infer", dtype="tf32")
