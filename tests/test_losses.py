import numpy as np
import pytest

from bitclass.losses import LOSSES, resolve_loss, tabulate
from brute_force import EVERY_LOSS, true_loss


def sigmoid(margins):
    return 1.0 / (1.0 + np.exp(-margins))


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_a_loss_is_what_its_name_says(name):
    margins = np.arange(-20, 21) / 2.0
    np.testing.assert_allclose(LOSSES[name](margins), true_loss(name, margins), rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("name", [*EVERY_LOSS, "sigmoid"])
def test_the_quadratic_form_equals_the_loss_in_one_bit(name, scale):
    """alpha + beta b (p - q) + delta p q = loss(m + (p - q) b) for all eight (p, q, b)."""
    n_bits = 9
    loss = resolve_loss(sigmoid) if name == "sigmoid" else LOSSES[name]
    table = tabulate(loss, n_bits, scale)
    tables, mixing = table.quadratic_tables(top=0)
    delta, beta = mixing @ tables
    lowest = 0.0 if loss.multiplicative else min(0.0, loss(np.array([-2.0 * scale * n_bits]))[0])
    for m in range(-2 * (n_bits - 1), 2 * n_bits - 1, 2):
        at = m // 2 + n_bits
        value = lambda margin: loss(np.array([scale * margin]))[0] - lowest  # noqa: E731
        alpha = value(m) - delta[at]
        for p, q, b in np.ndindex(2, 2, 2):
            p, q, b = 2 * p - 1, 2 * q - 1, 2 * b - 1
            form = alpha + beta[at] * b * (p - q) + delta[at] * p * q
            assert form == pytest.approx(value(m + (p - q) * b), rel=1e-9, abs=1e-9 * value(m + 2))


@pytest.mark.parametrize("top", [-40, 0, 33])
def test_the_unit_of_the_exponential_loss_does_not_matter(top):
    table = tabulate(LOSSES["exponential"], 50, 1.0)
    tables, mixing = table.quadratic_tables(top)
    absolute, _ = table.quadratic_tables(0)
    np.testing.assert_allclose(tables * np.exp(2.0 * top), absolute, rtol=1e-9)
    assert mixing.shape == (2, 1)


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("n_bits", [1, 128, 1000, 2048])
def test_tables_are_finite_at_any_length(name, n_bits):
    table = tabulate(LOSSES[name], n_bits, 1.0)
    for top in (-n_bits, 0, n_bits):
        tables, mixing = table.quadratic_tables(top)
        assert np.isfinite(tables).all()
        assert np.isfinite(mixing).all()
    assert np.isfinite(table.values).all()


def test_built_in_losses_are_convex_and_a_sigmoid_is_not():
    assert all(tabulate(LOSSES[name], 32, 0.3).convex for name in EVERY_LOSS)
    assert not tabulate(resolve_loss(sigmoid), 32, 0.3).convex


@pytest.mark.parametrize(
    "bump",
    [
        lambda m: np.exp(m) + 1e3 / (1 + np.exp(-m)),
        lambda m: np.exp(m / 4) + 1e6 * np.tanh(m / 20),
    ],
)
def test_a_bend_the_wrong_way_is_seen_beside_values_far_larger(bump):
    table = tabulate(resolve_loss(bump), 128, 1.0)
    assert not table.convex
    delta, _ = table.quadratic_tables(0)[0]
    assert delta.max() > 0


def test_an_offset_far_above_the_rise_is_taken_off():
    table = tabulate(resolve_loss(lambda m: 1e10 + m), 8, 1.0)
    assert table.grid().max() == 32.0


@pytest.mark.parametrize(
    ("function", "n_bits", "message"),
    [
        (lambda m: -np.abs(m), 8, r"falls from -?0 at margin 0 to -2 at margin 2"),
        (np.zeros_like, 8, "increase somewhere"),
        (np.exp, 400, r"inf at margin 710.*scale"),
        (lambda m: m[:3], 8, "one value per margin"),
    ],
    ids=["decreasing", "constant", "overflowing", "of another shape"],
)
def test_a_callable_that_is_no_loss_is_refused(function, n_bits, message):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        tabulate(resolve_loss(function), n_bits, 1.0)


@pytest.mark.parametrize("loss", ["hing", 3, None])
def test_an_unknown_loss_lists_the_known_ones(loss):
    with pytest.raises(ValueError, match="crammer_singer.*found"):
        resolve_loss(loss)
