"""Add an isometric pool to the projection shortcuts of a network and see what it does to the singular values."""

from skiplens import data, zoo
from skiplens.edits import surgery
from skiplens.jacobians import averages

model = zoo.build("mnist_residual")
images = data.load("sample").first(4).inputs

for change in (surgery.add_average_pool_skips, surgery.add_isometric_skips):
    print(change.__name__)
    print(averages.predict_effect(model, images, change, blocks=["block2.residual"], coupling="sample"))

better = surgery.add_isometric_skips(model, images)
print("pools:", ", ".join(surgery.pool_skips(better)))
better.load_state_dict(model.state_dict())  # both have the same state dict
