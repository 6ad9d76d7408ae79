"""Li, Jiao, Han & Weissman 2016, Demystifying ResNet."""
