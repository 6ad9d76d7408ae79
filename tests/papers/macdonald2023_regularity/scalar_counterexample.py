"""The counterexample in plain numbers with derivatives by hand: a second implementation, quick enough for 10⁶ steps."""

import math

X, S, TARGET = 1.5, 0.95, 1.85


def run(cost: str, smoothness: float, start: tuple[float, float, float], steps: int):
    """Losses, outputs, λ(DF) and σ(D en) after 0, …, `steps` steps, with the last weights."""
    eta, (w, a, b) = 1.9 / smoothness, start
    rows = []
    for step in range(steps + 1):
        u, du = X * w / math.sqrt(1 + w * w), X * (1 + w * w) ** -1.5
        A, dA = S * a / math.sqrt(1 + a * a), S * (1 + a * a) ** -1.5
        B, dB = S * b / math.sqrt(1 + b * b), S * (1 + b * b) ** -1.5
        h = A * u
        phi, slope = (0.8 * math.sin(4 * h) - 0.8 * h) / 4, 0.8 * math.cos(4 * h) - 0.2
        z = u + B * phi
        dz = ((1 + B * slope * A) * du, B * slope * u * dA, dB * phi)
        loss, dl = _cost(cost, z)
        rows.append((loss, z, sum(d * d for d in dz), du / X))
        if step < steps:
            w, a, b = w - eta * dl * dz[0], a - eta * dl * dz[1], b - eta * dl * dz[2]
    return rows, (w, a, b)


def _cost(cost: str, z: float) -> tuple[float, float]:
    if cost == "logistic":
        return math.log1p(math.exp(-z)), -1 / (1 + math.exp(z))
    return (z - TARGET) ** 2 / 2, z - TARGET
