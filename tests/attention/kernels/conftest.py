import pytest

from regard.attention.kernels import flash, strips


@pytest.fixture
def for_long_texts(monkeypatch):
    """Compute small inputs as long ones, with what pays for many rows only."""
    monkeypatch.setattr(flash, "MANY", 1)
    monkeypatch.setattr(strips, "TURNED", 1)
