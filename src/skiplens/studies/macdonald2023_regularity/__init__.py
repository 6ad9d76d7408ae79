"""MacDonald et al. 2023, On skip connections and normalisation layers in deep optimisation."""
