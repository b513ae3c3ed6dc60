from typing import TypeAlias

# (data pointer, dtype code, element size, shape, strides in elements); see dtk_kernels._native_calls.view.
_View: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]

def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def optional_instruction_sets() -> list[str]: ...
def block_digest(keys: _View, block_lengths: _View, key_min: _View, key_max: _View, /) -> None: ...
def block_score(
    query: _View, key_min: _View, key_max: _View, block_table: _View, head_reduction: int, scores: _View, /
) -> None: ...
def select_blocks(scores: _View, forced: _View | None, selected: _View, /) -> None: ...
def sparse_decode_attention(
    query: _View,
    keys: _View,
    values: _View,
    block_table: _View,
    block_lengths: _View,
    scale: float,
    output: _View,
    lse: _View,
    /,
) -> None: ...
def quantized_decode_attention(
    query: _View,
    keys: _View,
    values: _View,
    key_scales: _View,
    value_scales: _View,
    block_table: _View,
    block_lengths: _View,
    format: int,
    scale: float,
    output: _View,
    lse: _View,
    /,
) -> None: ...
def merge_partials(outputs: _View, lses: _View, output: _View, lse: _View, /) -> None: ...
def gather_blocks(pool: _View, block_ids: _View, blocks: _View, /) -> None: ...
def scatter_blocks(pool: _View, block_ids: _View, blocks: _View, /) -> None: ...
def copy_blocks(
    source_pool: _View, source_ids: _View, target_pool: _View, target_ids: _View, shared_memory: bool, /
) -> None: ...
def packed_linear(
    x: _View,
    packed_weight: _View,
    scales: _View,
    format: int,
    block_size: int,
    bias: _View | None,
    output: _View,
    /,
) -> None: ...

class NumberFormat:
    def __init__(
        self,
        *,
        bits: int,
        mantissa_bits: int,
        min_exponent: int,
        max_exponent: int,
        max_code: int,
        infinity_code: int | None,
        first_nan_code: int | None,
        is_integer: bool,
        largest: float,
    ) -> None: ...

class ScaleFormat:
    fp32: ScaleFormat
    bf16: ScaleFormat
    e8m0: ScaleFormat
    nvfp4: ScaleFormat

class ScaleRule:
    def __init__(self, format: ScaleFormat, e8m0_addend: int, /) -> None: ...

# Rows and columns of a block, 0 for the whole dim; None for one block.
_Block: TypeAlias = tuple[int, int] | None

def quantize(
    x: _View,
    random_bits: _View | None,
    format: NumberFormat,
    block: _Block,
    scale_rule: ScaleRule,
    codes: _View,
    scales: _View,
    tensor_scale: _View,
    /,
) -> None: ...
def fake_quantize(
    x: _View,
    random_bits: _View | None,
    format: NumberFormat,
    block: _Block,
    scale_rule: ScaleRule,
    values: _View,
    /,
) -> None: ...
def dequantize(
    codes: _View,
    scales: _View,
    scale_format: ScaleFormat,
    tensor_scale: float,
    format: NumberFormat,
    block: _Block,
    values: _View,
    /,
) -> None: ...
def hadamard(x: _View, signs: _View, inverse: bool, values: _View, /) -> None: ...
def pack(codes: _View, packed: _View, /) -> None: ...
def unpack(packed: _View, codes: _View, with_sign: bool, /) -> None: ...
def scaled_matmul(
    a_codes: _View,
    a_scales: _View,
    a_values: _View,
    b_codes: _View,
    b_scales: _View,
    b_values: _View,
    block_size: int,
    output: _View,
    /,
) -> None: ...

class Job:
    def done(self) -> bool: ...
    def wait(self, take_part: bool) -> None: ...

class WorkerPool:
    def __init__(self, num_threads: int, threads_per_sequence: int) -> None: ...
    def submit_sparse_decode_attention(
        self,
        query: _View,
        keys: _View,
        values: _View,
        block_table: _View,
        block_lengths: _View,
        scale: float,
        output: _View,
        lse: _View,
        /,
    ) -> Job: ...
    def submit_quantized_decode_attention(
        self,
        query: _View,
        keys: _View,
        values: _View,
        key_scales: _View,
        value_scales: _View,
        block_table: _View,
        block_lengths: _View,
        format: int,
        scale: float,
        output: _View,
        lse: _View,
        /,
    ) -> Job: ...
    def submit_block_digest(
        self, keys: _View, block_lengths: _View, key_min: _View, key_max: _View, /
    ) -> Job: ...
    def submit_block_score(
        self,
        query: _View,
        key_min: _View,
        key_max: _View,
        block_table: _View,
        head_reduction: int,
        scores: _View,
        /,
    ) -> Job: ...
    def submit_select_blocks(self, scores: _View, forced: _View | None, selected: _View, /) -> Job: ...
    def submit_gather_blocks(self, pool: _View, block_ids: _View, blocks: _View, /) -> Job: ...
    def submit_scatter_blocks(self, pool: _View, block_ids: _View, blocks: _View, /) -> Job: ...
    def submit_packed_linear(
        self,
        x: _View,
        packed_weight: _View,
        scales: _View,
        format: int,
        block_size: int,
        bias: _View | None,
        output: _View,
        /,
    ) -> Job: ...
    def submit_copy_blocks(self, copies: list[tuple[_View, _View, _View, _View]], /) -> Job: ...
    def submit_quantize(
        self,
        x: _View,
        random_bits: _View | None,
        format: NumberFormat,
        block: _Block,
        scale_rule: ScaleRule,
        codes: _View,
        scales: _View,
        tensor_scale: _View,
        /,
    ) -> Job: ...
    def submit_fake_quantize(
        self,
        x: _View,
        random_bits: _View | None,
        format: NumberFormat,
        block: _Block,
        scale_rule: ScaleRule,
        values: _View,
        /,
    ) -> Job: ...
    def close(self) -> None: ...

def limits_instruction_set() -> str: ...
def multiply_adds_per_step() -> int: ...
def submit_read(pool: WorkerPool, buffer: _View, sums: _View, /) -> Job: ...
def submit_multiply_adds(pool: WorkerPool, steps: int, sums: _View, /) -> Job: ...
