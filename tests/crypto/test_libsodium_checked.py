"""Importing the package refuses a libsodium that accepts points of mixed order as points of prime order.

libsodium before 2025-12-31 (in PyNaCl before 1.6.2) has this defect: CVE-2025-69277. The tests replace the installed
functions by functions that also accept the sum of any point of prime order and the point of order 2.
"""

import subprocess
import sys

import pytest
from nacl import bindings, exceptions

from testbed.crypto import edwards25519
from testbed.errors import InstallationError
from tests.messages_named import naming

MINUS_ONE = (2**255 - 20).to_bytes(32, "little")  # (0, -1), the point of order 2

FLAWED = """
import sys
from nacl import bindings
valid = bindings.crypto_core_ed25519_is_valid_point
other = bytes.fromhex("{minus_one}")
bindings.crypto_core_ed25519_is_valid_point = lambda point: (
    valid(point) or valid(bindings.crypto_core_ed25519_add(point, other))
)
from testbed.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("function", ["crypto_core_ed25519_is_valid_point", "crypto_scalarmult_ed25519_noclamp"])
def test_either_defective_function_is_detected(monkeypatch, function):
    edwards25519.check_libsodium()
    honest = getattr(bindings, function)

    def flawed(*arguments):
        *scalar, point = arguments
        without = bindings.crypto_core_ed25519_add(point, MINUS_ONE)
        try:
            return honest(*arguments) or honest(*scalar, without)
        except exceptions.CryptoError:
            return honest(*scalar, without)

    monkeypatch.setattr(bindings, function, flawed)
    with pytest.raises(InstallationError, match=r"CVE-2025-69277.*pynacl>=1\.6\.2"):
        edwards25519.check_libsodium()


def test_a_function_that_refuses_everything_is_detected(monkeypatch):
    monkeypatch.setattr(bindings, "crypto_core_ed25519_is_valid_point", lambda point: False)
    with pytest.raises(InstallationError, match=naming("base point")):
        edwards25519.check_libsodium()


def test_the_command_names_the_required_version_in_one_line():
    script = FLAWED.format(minus_one=MINUS_ONE.hex())
    done = subprocess.run([sys.executable, "-c", script, "schema"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the installed libsodium accepts points that are not of prime order")
    assert "pip install 'pynacl>=1.6.2'" in line
