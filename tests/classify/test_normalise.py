"""One spelling for the many in which recorders, logs and demanglers write a kernel's name."""

from __future__ import annotations

import pytest

from addrfrac.classify.demangle import demangle
from addrfrac.classify.normalise import head, normalise


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("void foo<int>(float*, int)", "foo<int>"),
        ("void at::native::(anonymous namespace)::k<4>(int)", "at::native::{anon}::k<4>"),
        ("void at::native::<unnamed>::k<(int)4>(T1 *)", "at::native::{anon}::k<4>"),
        ("void k<int=384, bool=1>(int)", "k<384, 1>"),
        ("void k<4ul, 8u>(int)", "k<4, 8>"),
        (
            "std::enable_if<!(T7), void>::type internal::gemvx::kernel<int, float>(int)",
            "internal::gemvx::kernel<int, float>",
        ),
        ("MIOpenBatchNormBwdSpatial.kd", "MIOpenBatchNormBwdSpatial"),
        ("void k<float>(int) [clone .kd]", "k<float>"),
        ("fused_kernel_0d1d2d3de", "fused_kernel"),
        ("triton_poi_fused_add_3_0d1d2de", "inductor::poi<add>"),
        ("void k<f(int)::{lambda(int)#1}>(int)", "k<f(int)::{lambda(int)#1}>"),
        ("void k<[lambda(int) (instance 1)]>(int)", "k<{lambda(int)#1}>"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("void cut::off<at::native::Some<float, ...", "cut::off<at::native::Some<float,"),
        ("unsigned int plain(int)", "unsigned int plain"),
    ],
)
def test_a_name_has_one_spelling(name: str, text: str) -> None:
    assert normalise(name).text == text


def test_the_head_ends_before_the_template_arguments() -> None:
    assert head("at::native::reduce_kernel<512, 1>") == "at::native::reduce_kernel"


@pytest.mark.parametrize(
    ("mangled", "demangled"),
    [
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16EEEvPT0_",
            "aiter::add_rmsnorm_quant_kernel<256, 16>",
        ),
        ("_ZN12_GLOBAL__N_16kernelEv", "{anon}::kernel"),
        ("_Z6kernelPfi", "kernel"),
        ("_Z6kernelIfEvPT_", "kernel"),
        ("_ZN4vllm25fused_add_rms_norm_kernelIN3c104HalfEEEv", "vllm::fused_add_rms_norm_kernel<c10::Half>"),
        ("_ZN7ck_tile6kentryILi64ELi2ENS_22FmhaBwdOGradDotOKer", "ck_tile::kentry<64, 2, FmhaBwdOGradDotOKer>"),
        ("not_mangled", "not_mangled"),
        ("_Z", "_Z"),
    ],
)
def test_a_mangled_name_gives_its_qualified_name_even_when_it_was_cut(mangled: str, demangled: str) -> None:
    assert demangle(mangled) == demangled


@pytest.mark.parametrize("cut", range(3, 60, 7))
def test_no_cut_of_a_mangled_name_is_an_error(cut: int) -> None:
    name = "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmEEE"
    assert demangle(name[:cut])
