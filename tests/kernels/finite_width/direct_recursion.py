"""The note's recursion in plain second moments, written a second time and with nothing shared: (A1, A2, c1, c2, e)."""

from fractions import Fraction


def linear(s, fan_in, N, sigma):
    A1, A2, c1, c2, e = s
    s4 = sigma * sigma / (fan_in * fan_in)
    return (
        s4 * (N**2 * A1 + 2 * N * A2 + 2 * N**2 * c1 + N**2 * e),
        s4 * (N * A1 + (N**2 + N) * A2 + 2 * N * c1 + N * e),
        s4 * (N**2 * c1 + 2 * N * c2 + N**2 * e),
        s4 * (N * c1 + (N**2 + N) * c2 + N * e),
        s4 * (N**2 + 2 * N) * e,
    )


def gate(s, n):
    A1, A2, c1, c2, e = s
    u, w = (A1 + 2 * A2) / (n + 2), (c1 + 2 * c2) / (n + 2)
    return (A1 + u, A2 + u, c1 + w, c2 + w, e + 3 * e / (n + 2))


def start(n, first):
    return (first * n**2, first * n, first * n**2, first * n, n**2 + 2 * n)


def readout(s, n, last):
    A1, A2, c1, _, e = s
    return (A1 + 2 * A2 + last * (2 * c1 + e)) / n**2


def resnet_second_moment(L, m, alpha, n, first=0, last=0):
    n, a = Fraction(n), Fraction(alpha) ** m
    s = start(n, first)
    for _ in range(L):
        b = linear(s, n, n, Fraction(alpha))
        for _ in range(m - 1):
            b = linear(gate(b, n), n, n, Fraction(alpha))
        A1, A2, c1, c2, e = s
        an = a / n
        s = (
            A1 + 4 * an * A2 + 2 * a * (A1 + m * c1) + b[0],
            A2 + 2 * an * A2 + 2 * a * A2 + 2 * an * (A1 + m * c1) + b[1],
            c1 + a * c1 + 4 * an * c2 + a * (c1 + m * e) + b[2],
            c2 + an * c1 + 2 * a * (1 + 1 / n) * c2 + an * (c1 + m * e) + b[3],
            e + 2 * a * e + 4 * an * e + b[4],
        )
    return readout(s, n, last)


def densenet_second_moment(L, n, first=0, last=0):
    n = Fraction(n)
    s = gate(start(n, first), n)
    for layer in range(1, L):
        g = gate(linear(s, n * layer, n, 1), n)
        A1, A2, c1, c2, e = s
        s = (
            A1 + 2 * (A1 + c1) / layer + g[0],
            A2 + 2 * A2 / layer + g[1],
            c1 + (2 * c1 + e) / layer + g[2],
            c2 + 2 * c2 / layer + g[3],
            e + 2 * e / layer + g[4],
        )
    return readout(linear(s, n * L, n, 1), n, last)


def vanilla_second_moment(L, n, first=0, last=0):
    n = Fraction(n)
    s = start(n, first)
    for _ in range(L):
        s = gate(linear(s, n, n, 1), n)
    return readout(s, n, last)
