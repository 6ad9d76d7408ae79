"""Add an isometric pool to the projection shortcuts of a network and see what it does to the singular values."""

import skiplens as sl
from skiplens import data
from skiplens.residual import zoo

model = zoo.build("mnist_residual")
images = data.load("sample").first(4).inputs

for change in (sl.surgery.add_average_pool_skips, sl.surgery.add_isometric_skips):
    print(change.__name__)
    print(sl.surgery.predict_effect(model, images, change, blocks=["block2.residual"], coupling="sample"))

better = sl.surgery.add_isometric_skips(model, images)
print("pools:", ", ".join(sl.surgery.pool_skips(better)))
better.load_state_dict(model.state_dict())  # both have the same state dict
