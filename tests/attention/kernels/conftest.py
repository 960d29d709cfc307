import pytest

from regard.attention.kernels import choose, flash, strips


@pytest.fixture
def for_long_texts(monkeypatch):
    """Compute small inputs as long ones: in several strips, and with what pays for many rows."""
    for module, name in ((choose, "ROWS"), (flash, "MANY"), (strips, "TURNED")):
        monkeypatch.setattr(module, name, 1)
