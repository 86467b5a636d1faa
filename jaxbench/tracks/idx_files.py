"""IDX, the file format of MNIST: a magic number, the shape, then the values, big-endian.

The magic number is two zero bytes, the code of the type and the number of dimensions, each of which
follows as an unsigned number of 32 bits (LeCun, Cortes and Burges, The MNIST database).
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from jaxbench.base import JaxbenchError

UNSIGNED_BYTE = 0x08
GZIP = b"\x1f\x8b"


def find(folder: Path, name: str, help: str) -> Path:
    """Find a file by its name in a folder, plain or gzipped, with `-idx` or `.idx` before its form.

    Args:
        folder: where the user says it is.
        name: such as `train-images-idx3-ubyte`.
        help: where it can be had from, for the error.

    Raises:
        JaxbenchError: there is no such folder or file.
    """
    if not folder.is_dir():
        raise JaxbenchError(f"no folder {str(folder)!r}; {help}")
    names = [name, name.replace("-idx", ".idx")]
    for each in [*names, *(f"{plain}.gz" for plain in names)]:
        if (folder / each).is_file():
            return folder / each
    raise JaxbenchError(f"no file {name} or {name}.gz in {str(folder)!r}; {help}")


def read(path: Path, dimensions: int) -> np.ndarray:
    """Read the array of unsigned bytes of an IDX file, gzipped or not.

    Args:
        path: of the file.
        dimensions: that it must have.

    Raises:
        JaxbenchError: it cannot be read, or is no such file.
    """
    try:
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise JaxbenchError(f"{path} cannot be read: {error}") from error
    header = 4 * (1 + dimensions)
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != expected or len(content) < header:
        raise JaxbenchError(
            f"{path} is no IDX file of unsigned bytes in {dimensions} dimensions: expected it to "
            f"begin with {expected.hex(' ')}, got {content[:4].hex(' ') or 'nothing'}; fetch it "
            f"again"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], ">u4"))
    if len(content) - header != math.prod(shape):
        raise JaxbenchError(
            f"{path} is cut short or too long: its shape {list(shape)} needs {math.prod(shape)} "
            f"values, but {len(content) - header} follow; fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
