"""The embedded digits, data in batches, and data of your own in the same form."""

import torch

from skiplens import data

digits = data.sample()
print("embedded:", tuple(digits.images.shape), "first labels", digits.labels[:8].tolist())

batches = data.load("sample", data.LoadOptions(batch_size=32, samples=100))
batch = batches.first(64)
print(f"{len(batches)} batches; standardised: mean {batch.inputs.mean():.2f}, deviation {batch.inputs.std():.2f}")

own = torch.utils.data.TensorDataset(torch.randn(10, 3), torch.arange(10))
loader = torch.utils.data.DataLoader(own, batch_size=4)
print("your own loader:", data.count_samples(loader), "samples; the first six:", data.take(loader, 6).targets.tolist())

whitening = data.fit_whitening(digits.pixels(torch.float64).flatten(1), 10)
print("ten whitened components:", tuple(whitening(digits.pixels(torch.float64).flatten(1)).shape))
