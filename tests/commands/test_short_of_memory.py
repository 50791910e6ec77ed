"""Out-of-memory errors are reported as such, and not as a bug, whichever library raises them."""

import errno

import pytest

from testbed.cli.invocation import FAILED, Invocation, report_error

SHORT = [
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ImportError("libgomp.so.1: cannot allocate memory in static TLS block"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried 4 bytes"),
]


@pytest.mark.parametrize("error", SHORT, ids=str)
def test_one_line_says_that_memory_is_short(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error, Invocation(())) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: out of memory")
    assert "ulimit -v" in line
    assert "bug" not in line


def test_other_errors_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(ImportError("cannot import name 'memory'"), Invocation(()))
    assert "a bug in the testbed" in capsys.readouterr().err
