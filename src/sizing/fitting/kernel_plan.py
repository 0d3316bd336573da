"""Which constants each family of kernels is given: shared by its formats, of one format, or chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sizing.calibration import BY_KEY, default
from sizing.validation.kernel_tables import KernelTable

Place = tuple[str, str]
"""Family (or family and format) and name of a constant."""


Choice = Mapping[Place, float]
"""Settings of constants that are not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one family is fitted.

    Attributes
    ----------
    families
        Families whose constants move.
    operations
        Beginnings of the names of the tables that take part.
    instead_of
        Tables that make these unnecessary: with them, another plan is for the family.
    shared, own
        Constants of the whole family, and of each format.
    always
        Constants of one format that are moved wherever it is there.
    optional, own_optional
        Constants that are moved only where they lower the loss enough.
    choices
        Settings that are tried one after the other, each with a fit of its own.
    worth
        Share of the loss that one more constant must take away. [1]
    aim
        Median error that is good enough: what a constant takes away is weighed by it where numbers must go. [1]
    """

    families: tuple[str, ...]
    operations: tuple[str, ...]
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    always: tuple[Place, ...] = ()
    optional: tuple[str, ...] = ()
    own_optional: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ({},)
    worth: float = 0.10
    aim: float = 0.08
    instead_of: tuple[str, ...] = ()

    def takes(self, operation: str, present: Sequence[str]) -> bool:
        """Whether a table takes part, given which tables there are."""
        family = operation.partition(".")[0]
        return family in self.operations and not any(p.partition(".")[0] in self.instead_of for p in present)

    def key_of(self, operation: str) -> str:
        """Family, with its format where the family has them, whose constants predict a table."""
        family, _, kernel_format = operation.partition(".")
        if family in self.families:
            return f"{family}.{kernel_format}" if kernel_format else family
        return self.families[0]

    def needed(self, tables: Sequence[KernelTable]) -> list[Place]:
        """Constants that are always moved on some tables."""
        present = {self.key_of(t.operation) for t in tables}
        return self._places(self.shared, self.own, tables) + [place for place in self.always if place[0] in present]

    def optional_ones(self, tables: Sequence[KernelTable]) -> list[Place]:
        """Constants that may be moved on some tables."""
        shared = self._places(self.optional, (), tables)
        own = self._places((), self.own_optional, tables)
        own = [p for p in own if p not in self.always and (p[1] not in OF_QUANTISED or p[0].endswith(QUANTISED))]
        return shared + own

    def _places(self, shared: Sequence[str], own: Sequence[str], tables: Sequence[KernelTable]) -> list[Place]:
        keys = dict.fromkeys(self.key_of(t.operation) for t in tables)
        return [(family, name) for family in self.families for name in shared] + [
            (key, name) for key in keys if "." in key for name in own
        ]

    def settings(self, tables: Sequence[KernelTable]) -> list[Choice]:
        """Settings to try on some tables; the first holds the defaults that a shared constant must not move."""
        keys = {self.key_of(t.operation) for t in tables}
        kept = {(k, n): v for k in keys for n, v in BY_KEY.get(k, {}).items() if (k.partition(".")[0], n) in FIXED}
        return [{**kept, **{p: v for p, v in c.items() if p[0] in keys}} for c in self.choices]

    def is_news(self, place: Place, value: float) -> bool:
        """Whether a setting must be written down: it differs from the default."""
        return value != float(getattr(default(place[0]), place[1])) or place in {p for c in self.choices for p in c}


OF_QUANTISED = ("quantise_row_s", "quantise_fraction")
"""Constants that only formats with a quantised input have of their own."""
QUANTISED = (".fp8", ".fp8_block", ".nvfp4")
FIXED = {("gemm", "split_s")}
"""Shared constants that a format's own default stands against."""

PLANS = (
    Plan(
        families=("gemm",),
        operations=("gemm",),
        own=("compute_fraction",),
        always=(("gemm.bf16", "fixed_s"), ("gemm.bf16", "depth_s"), ("gemm.bf16", "memory_fraction")),
        optional=("memory_fraction", "depth_s", "wave_exponent", "split_s", "ramp_bytes"),
        own_optional=("fixed_s", "ramp_bytes", "quantise_row_s", "quantise_fraction", "depth_s"),
        choices=({}, {("gemm.fp8", "split_s"): 1.0}),
        worth=0.04,
        aim=0.05,
    ),
    Plan(
        families=("moe",),
        operations=("moe",),
        shared=("fixed_s", "compute_fraction"),
        optional=("token_s", "copy_s", "row_s", "memory_fraction", "tile_rows"),
        own_optional=("compute_fraction", "fixed_s", "copy_s", "row_s", "tile_rows"),
        worth=0.04,
        aim=0.10,
    ),
    Plan(
        families=("attention_decode",),
        operations=("attention_decode",),
        shared=("fixed_s", "memory_fraction", "unit_s"),
        optional=(
            "smoothness", "context_s", "narrow", "shared", "alone_s", "element_s", "compute_fraction", "split_s",
            "reorder_s",
        ),
        worth=0.04,
        choices=({}, {("attention_decode", "shared_heads"): 32.0}),
    ),
    Plan(
        families=("attention_prefill",),
        operations=("attention_prefill",),
        shared=("fixed_s", "compute_fraction"),
        optional=("ramp_tokens", "memory_fraction", "token_s", "narrow"),
        worth=0.04,
        choices=(
            {},
            {("attention_prefill", "tile_rows"): 64.0},
            {("attention_prefill", "packed"): 1.0},
        ),
    ),
    *(
        Plan(families=("mla_decode",), operations=(table,), shared=("fixed_s",),
             optional=("unit_s", "compute_fraction", "memory_fraction", "context_s", "narrow", "narrow_rate",
                       "smoothness", "split_s"), worth=0.04, aim=0.065, instead_of=instead)
        for table, instead in (("mla_decode", ()), ("mla_decode_module", ("mla_decode",)))
    ),
    *(
        Plan(families=("mla_prefill",), operations=(table,), shared=("fixed_s",),
             optional=("compute_fraction", "ramp_tokens", "narrow", "token_s", *traffic),
             choices=({}, *choices), worth=0.04, aim=0.065, instead_of=instead)
        for table, instead, traffic, choices in (
            ("mla_prefill", (), ("memory_fraction",),
             ({("mla_prefill", "tile_rows"): 64.0}, {("mla_prefill", "quantises"): 1.0})),
            ("mla_prefill_module", ("mla_prefill",), (), ()),
        )
    ),
    Plan(families=("all_reduce",), operations=("all_reduce",), shared=("fixed_s", "link_fraction"),
         optional=("smoothness", "growth"), worth=0.04, aim=0.10),
    Plan(families=("nccl",), operations=("nccl",), shared=("fixed_s",), worth=0.04, aim=0.10),
    Plan(families=("deepep",), operations=("deepep",), optional=("copy_scale",), worth=0.1, aim=0.10),
    Plan(families=("deepep_low",), operations=("deepep_low",), aim=0.10),
)  # fmt: skip
"""In the order of the fit; blocks are fitted with the products they contain already in place."""
