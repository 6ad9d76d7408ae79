"""Slices of the loss around a network: along its sharpest directions, and along random ones."""

import skiplens as sl
from skiplens import data, zoo
from skiplens.plots.matplotlib_file import save_figure
from skiplens.report.lenses import figures_of

model = zoo.build("mnist_residual").eval()
samples = data.load("sample").first(16)

line = sl.loss_landscape(model, samples, loss="cross_entropy", dimensions=1, points=11, radius=0.2)
print(f"loss {line.loss:.3f}; along the {line.directions[0]} it is lowest with {line.lowest:.3f}")

plane = sl.loss_landscape(model, samples, loss="cross_entropy", directions="random", points=5)
print("random plane:", " x ".join(map(str, plane.losses.shape)), "points, directions", ", ".join(plane.directions))

for figure in figures_of(plane):
    save_figure(figure, f"{figure.name}.png")
    print("drawn:", figure.name)
