"""Follow a network while it trains, in a plain loop; a reading file is there at any time."""

import torch
import torch.nn.functional as F

import skiplens as sl
from skiplens import data, zoo
from skiplens.readings import read_file

digits = data.load("sample").first(400)
model = zoo.build("mnist_residual")
optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

# This run lasts about a second, so looking may take a hundred times as long; 5 % is what a real one gets by default.
monitor = sl.Monitor(model, digits, every=10, share=100, quantities=("weight_norm", "depth"), path="run.reading")
with monitor:
    for step in range(40):
        batch = digits.select(torch.arange(step * 40, step * 40 + 40) % 400)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(batch.inputs), batch.targets)
        loss.backward()
        optimiser.step()
        monitor.step(loss)

reading = read_file("run.reading")
for row, step in enumerate(reading.steps.tolist()):
    depth, norm = float(reading["mean_depth"][row]), float(reading["weight_norm"][row])
    print(f"step {step:2d}: mean depth {depth:.2f} branches, norm of the weights {norm:.1f}")
print(f"looking took {reading.own_seconds:.1f} s beside {reading.run_seconds:.1f} s of the run")
for sentence in reading.budget_sentences:
    print(sentence)
