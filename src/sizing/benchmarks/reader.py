"""What a reader is, and the registry that the files of ``readers/`` enter themselves in."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint
from sizing.registry import Registry


class Reader(Protocol):
    """Reader of one tool's result file.

    ``title`` names tool and file for people; ``rank`` decides between two that recognise a file (lower
    first); ``hint_only`` formats carry request rates and end-to-end times, not TTFT or TPOT.
    """

    title: ClassVar[str]
    rank: ClassVar[int]
    hint_only: ClassVar[bool]

    def recognises(self, document: Document) -> bool:
        """Whether the content is of this format."""
        ...

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """The points in the file, as the file gives them."""
        ...


READERS: Registry[type[Reader]] = Registry("benchmark format", "sizing.benchmarks.readers")
